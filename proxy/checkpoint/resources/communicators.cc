#include "checkpoint/resources/communicators.h"

#include <fcntl.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "pyft/log.h"

namespace pyft::checkpoint {

CommunicatorTable::CommunicatorTable(ring::Channel& channel)
    : channel_(channel), header_(reinterpret_cast<ring::StoreHeader*>(channel.store())) {}

ring::StoredCommunicator* CommunicatorTable::entry_for(uint64_t handle, uint64_t seq) {
  ring::StoredCommunicator* unused = nullptr;
  for (ring::StoredCommunicator& entry : all()) {
    if (entry.handle == handle && entry.seq == seq) return &entry;
    if (!entry.handle && !unused) unused = &entry;
  }
  if (!unused && !std::exchange(said_full_, true))
    PYFT_LOG(kRecovery, kWarning,
             "device [%u]: more than [%u] communicators: the others are not recorded, and a "
             "failure of this rank ends the job",
             channel_.device(), ring::kMaxCommunicators);
  return unused;
}

void CommunicatorTable::put(ring::StoredCommunicator* entry, const ring::StoredCommunicator& what) {
  ring::StoredCommunicator unused = what;
  unused.handle = 0;
  *entry = unused;
  std::atomic_ref(entry->handle).store(what.handle, std::memory_order_release);
}

ring::StoredCommunicator* CommunicatorTable::living(uint64_t handle) const {
  for (ring::StoredCommunicator& entry : all())
    if (entry.handle == handle && !entry.ended_seq) return &entry;
  return nullptr;
}

// The line of the committed snapshot stays until this cut takes its place, if it ever does.
void CommunicatorTable::note_line(ring::StoredCommunicator* entry, uint64_t cut,
                                  uint64_t operation) const {
  const uint64_t current = committed().cut;
  const int other = current && entry->line_cut[0] == current ? 1 : 0;
  entry->line_cut[other] = 0;
  entry->line_operation[other] = operation;
  entry->line_cut[other] = cut;
}

void CommunicatorTable::drop(ring::StoredCommunicator& entry) {
  std::atomic_ref(entry.handle).store(0, std::memory_order_release);
}

void CommunicatorTable::drop_records(const ring::StoredCommunicator& entry) const {
  const std::span<std::byte> region = records(entry);
  fallocate(channel_.store_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(region.data() - channel_.store()),
            static_cast<off_t>(region.size()));
}

std::span<ring::StoredCommunicator> CommunicatorTable::all() const {
  std::byte* const at = channel_.store() + header_->communicators_offset;
  return {reinterpret_cast<ring::StoredCommunicator*>(at), ring::kMaxCommunicators};
}

ring::Manifest CommunicatorTable::committed() const {
  ring::Manifest manifest{};
  if (const uint32_t current = header_->current.load())
    std::memcpy(&manifest, channel_.store() + header_->manifest_offset[current - 1],
                sizeof manifest);
  return manifest;
}

uint64_t CommunicatorTable::line(const ring::StoredCommunicator& entry, uint64_t cut) {
  for (int i = 0; i < 2; ++i)
    if (cut && entry.line_cut[i] == cut) return entry.line_operation[i];
  return 0;
}

std::span<std::byte> CommunicatorTable::records(const ring::StoredCommunicator& entry) const {
  const uint64_t bytes =
      header_->records_bytes / ring::kMaxCommunicators / ring::kPageBytes * ring::kPageBytes;
  const auto index = static_cast<uint64_t>(&entry - all().data());
  return {channel_.store() + header_->records_offset + index * bytes, bytes};
}

}  // namespace pyft::checkpoint
