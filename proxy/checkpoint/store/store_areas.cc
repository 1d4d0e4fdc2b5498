#include "checkpoint/store/store_areas.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/digest/digest.h"

namespace pyft::checkpoint {

namespace {

bool fits(uint64_t offset, uint64_t area, uint64_t bytes) {
  return offset % ring::kPageBytes == 0 && offset >= ring::kPageBytes && offset <= bytes &&
         area <= bytes - offset;
}

}  // namespace

bool back_pages(int fd, uint64_t offset, uint64_t bytes) {
  return fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

uint64_t page_up(uint64_t value) {
  return (value + ring::kPageBytes - 1) / ring::kPageBytes * ring::kPageBytes;
}

std::string numbered(const char* text, uint64_t value) {
  return std::string(text) + " [" + std::to_string(value) + "]";
}

// One area after the other. `magic` comes last: a store counts once it is whole.
std::string format_store(std::byte* base, uint64_t bytes, int fd, const StoreShape& shape) {
  const uint64_t communicators =
      page_up(ring::kMaxCommunicators * sizeof(ring::StoredCommunicator));
  const uint64_t manifests = ring::kPageBytes + communicators;
  const uint64_t manifest_bytes = page_up(shape.manifest_bytes);
  const uint64_t shares = manifests + 3 * manifest_bytes;
  const uint64_t journal = shares + page_up(shape.shares_bytes);
  const uint64_t records = journal + page_up(shape.journal_bytes);
  const uint64_t records_bytes =
      std::min(page_up(shape.records_bytes), bytes / 2 / ring::kPageBytes * ring::kPageBytes);
  const uint64_t heap = records + records_bytes;
  if (heap >= bytes) return numbered("the store is too small: bytes", bytes);
  if (!back_pages(fd, 0, manifests)) return "there is no memory for the store's first pages";
  auto* header = reinterpret_cast<ring::StoreHeader*>(base);
  header->bytes = bytes;
  header->communicators_offset = ring::kPageBytes;
  header->manifest_offset[0] = manifests;
  header->manifest_offset[1] = manifests + manifest_bytes;
  header->lent_offset = manifests + 2 * manifest_bytes;
  header->shares_offset = shares;
  header->shares_bytes = page_up(shape.shares_bytes);
  header->journal_offset = journal;
  header->journal_bytes = page_up(shape.journal_bytes);
  header->records_offset = records;
  header->records_bytes = records_bytes;
  header->heap_offset = heap;
  header->heap_bytes = bytes - heap;
  header->version = ring::kStoreVersion;
  if (!header->seed && getrandom(&header->seed, sizeof header->seed, 0) != sizeof header->seed)
    return "the kernel gives no random number for the store's digests";
  std::atomic_ref(header->magic).store(ring::kStoreMagic, std::memory_order_release);
  return {};
}

std::string check_store(const ring::StoreHeader& header, uint64_t bytes) {
  if (header.magic != ring::kStoreMagic)
    return numbered("the store has magic number", header.magic);
  if (header.version != ring::kStoreVersion)
    return numbered("the store has layout version", header.version);
  if (header.bytes != bytes) return numbered("the store says that its size is", header.bytes);
  const uint64_t first = header.manifest_offset[0], second = header.manifest_offset[1];
  const uint64_t room = manifest_room(header);  // more than there is, if the second one lies before
  if (room == 0 || !fits(first, room, bytes) || !fits(second, room, bytes))
    return numbered("the store's second table does not fit: offset", second);
  if (!fits(header.lent_offset, room, bytes))
    return numbered("the store's third table does not fit: offset", header.lent_offset);
  if (!fits(header.shares_offset, header.shares_bytes, bytes))
    return numbered("the store's shares do not fit: offset", header.shares_offset);
  if (!fits(header.communicators_offset, ring::kMaxCommunicators * sizeof(ring::StoredCommunicator),
            bytes))
    return numbered("the store's communicators do not fit: offset", header.communicators_offset);
  if (!fits(header.journal_offset, header.journal_bytes, bytes))
    return numbered("the store's journal does not fit: offset", header.journal_offset);
  if (!fits(header.records_offset, header.records_bytes, bytes))
    return numbered("the store's records do not fit: offset", header.records_offset);
  if (!fits(header.heap_offset, header.heap_bytes, bytes))
    return numbered("the store's heap does not fit: offset", header.heap_offset);
  if (header.current > 2) return numbered("the store names committed snapshot", header.current);
  return {};
}

ring::Digest checksum_of(const StoredSnapshot& snapshot, uint64_t seed) {
  const ring::Manifest& m = snapshot.manifest;
  const uint64_t numbers[] = {m.cut, m.seq, m.position, m.blocks, m.places, m.bytes, m.step};
  Hasher hasher(seed);
  hasher.add(numbers, sizeof numbers);
  hasher.add(snapshot.blocks.data(), snapshot.blocks.size() * sizeof(ring::ManifestBlock));
  hasher.add(snapshot.places.data(), snapshot.places.size() * sizeof(ring::ManifestPlace));
  return hasher.digest();
}

std::string load_snapshot(int fd, uint64_t offset, uint64_t room, uint64_t seed,
                          StoredSnapshot* snapshot) {
  uint64_t at = offset;
  const auto get = [&](void* to, uint64_t bytes) {
    const ssize_t got = bytes ? pread(fd, to, bytes, static_cast<off_t>(at)) : 0;
    at += bytes;
    return got == static_cast<ssize_t>(bytes);
  };
  ring::Manifest& m = snapshot->manifest;
  if (!get(&m, sizeof m)) return "the committed snapshot in the store cannot be read";
  room -= sizeof m;
  if (m.blocks > room / sizeof(ring::ManifestBlock) ||
      m.places > (room - m.blocks * sizeof(ring::ManifestBlock)) / sizeof(ring::ManifestPlace))
    return numbered("the committed snapshot in the store is damaged: blocks", m.blocks);
  snapshot->blocks.resize(m.blocks);
  snapshot->places.resize(m.places);
  if (!get(snapshot->blocks.data(), m.blocks * sizeof(ring::ManifestBlock)) ||
      !get(snapshot->places.data(), m.places * sizeof(ring::ManifestPlace)))
    return "the committed snapshot in the store cannot be read";
  if (checksum_of(*snapshot, seed) != m.checksum)
    return numbered(
        "the committed snapshot in the store is damaged: its table has another checksum, cut",
        m.cut);
  return {};
}

}  // namespace pyft::checkpoint
