#include "server/session/session.h"

#include "ring/reply.h"

namespace pyft::server {

namespace {

// It keeps nothing, so that all sessions may have the same.
DeviceCalls& idle_device() {
  static DeviceCalls device;
  return device;
}

}  // namespace

uint32_t HandleTable::limit_of(HandleKind kind) {
  const bool words = kind == HandleKind::kStream || kind == HandleKind::kEvent ||
                     kind == HandleKind::kCommunicator;
  return words ? ring::kCompletionWords : kMaxObjects;
}

bool HandleTable::bind(Handle handle, void* object) {
  const uint32_t index = handle.index();
  if (index == 0 || index >= limit_of(handle.kind())) return false;
  if (index >= slots_.size()) slots_.resize(index + 1);
  Slot& slot = slots_[index];
  if (slot.live) return false;
  slot = {object, handle.generation(), true};
  return true;
}

void* HandleTable::find(Handle handle) const {
  const uint32_t index = handle.index();
  if (index >= slots_.size()) return nullptr;
  const Slot& slot = slots_[index];
  return slot.live && slot.generation == handle.generation() ? slot.object : nullptr;
}

uint64_t HandleTable::handle_of(HandleKind kind, const void* object) const {
  for (uint32_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].live && slots_[i].object == object)
      return Handle::make(kind, i, slots_[i].generation).value;
  return 0;
}

void* HandleTable::unbind(Handle handle) {
  void* object = find(handle);
  if (object) slots_[handle.index()].live = false;
  return object;
}

Session::Session(ring::Channel& channel, const backend::Table* backend,
                 const ring::Liveness& liveness, DeviceCalls& device)
    : channel_(channel),
      backend_(backend),
      liveness_(liveness),
      recovery_(channel),
      device_(device) {}

Session::Session(ring::Channel& channel, const backend::Table* backend,
                 const ring::Liveness& liveness)
    : Session(channel, backend, liveness, idle_device()) {}

HandleTable& Session::table(HandleKind kind) {
  return tables_[static_cast<size_t>(kind) % tables_.size()];
}

void* Session::find(uint64_t value, HandleKind kind) {
  const Handle handle{value};
  return handle.kind() == kind ? table(kind).find(handle) : nullptr;
}

bool Session::find_stream(uint64_t value, void** stream) {
  constexpr uint64_t kPerThread = 2;  // 0, 1, 2: null, legacy, per-thread
  *stream = value <= kPerThread ? reinterpret_cast<void*>(value) : find(value, HandleKind::kStream);
  return value <= kPerThread || *stream;
}

Status Session::reply(const ring::EntryHeader& header, int32_t code,
                      std::span<const uint64_t> values, std::span<const std::byte> bytes) {
  if (!(header.flags & ring::kWantsReply)) return Status::good();
  if (recovery_.replaces() && answered_before(header, code)) return Status::good();
  if (ring::answer(channel_, header.reply_slot, header.seq, code, values, bytes))
    return Status::good();
  return Status::broken("the answer to entry [" + std::to_string(header.seq) + "] of [" +
                        std::to_string(bytes.size()) + "] bytes does not fit reply slot [" +
                        std::to_string(header.reply_slot) + "]");
}

// A server before this one has given this answer, and the slot may be another call's by now.
bool Session::answered_before(const ring::EntryHeader& header, int32_t code) {
  if (header.reply_slot >= ring::kReplySlots) return false;
  const ring::ReplySlot& slot = channel_.slot(header.reply_slot);
  const uint64_t done = slot.done_seq.load(std::memory_order_acquire);
  if (done == header.seq && slot.code == code) recovery_.agreed();
  // When the failure of a kernel is noticed is a matter of chance, the first time as well.
  const bool late = recovery_.mode() == ring::ReplayMode::kDeliver && code && device_failure();
  if (done == header.seq && slot.code != code && !late)
    recovery_.differed({header.seq, header.call,
                        "code [" + std::to_string(code) + "], the program was given [" +
                            std::to_string(slot.code) + "]",
                        checkpoint::Weight::kDecides, checkpoint::Repeated::kNot, true});
  // The answer is gone. Of what was to make something it is known all the same.
  constexpr uint16_t kNotKnown = ring::kStreamCaptured | ring::kRefused;
  const bool made = header.flags & ring::kCreates && !(header.flags & kNotKnown);
  if (done > header.seq && made && code && !late)
    recovery_.fail(ring::FaultKind::kUnrecoverable, code,
                   "entry [" + std::to_string(header.seq) +
                       "] has made something that is refused now: code [" + std::to_string(code) +
                       "]",
                   header.seq);
  return done >= header.seq;
}

bool Session::in_pinned(uint64_t address, uint64_t bytes) const {
  const auto base = reinterpret_cast<uint64_t>(channel_.pinned());
  const uint64_t size = channel_.pinned_bytes();
  return base && address >= base && address - base <= size && bytes <= size - (address - base);
}

bool Session::in_device_window(uint64_t address, uint64_t bytes) const {
  const uint64_t base = ring::kDeviceWindowBase + channel_.device() * ring::kDeviceWindowBytes;
  return address >= base && address - base <= ring::kDeviceWindowBytes &&
         bytes <= ring::kDeviceWindowBytes - (address - base);
}

}  // namespace pyft::server
