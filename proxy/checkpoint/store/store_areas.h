// How the memory object of a store is divided, and committed snapshots as they lie in it.
#ifndef PYFT_CHECKPOINT_STORE_STORE_AREAS_H_
#define PYFT_CHECKPOINT_STORE_STORE_AREAS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ring/store_layout.h"

namespace pyft::checkpoint {

// A committed snapshot as a process keeps it.
struct StoredSnapshot {
  ring::Manifest manifest{};
  std::vector<ring::ManifestBlock> blocks;  // by address
  std::vector<ring::ManifestPlace> places;
};

// Bytes of the areas before the heap; tests make them smaller.
struct StoreShape {
  uint64_t manifest_bytes = ring::kManifestBytes;
  uint64_t journal_bytes = ring::kJournalBytes;
  uint64_t records_bytes = ring::kRecordsBytes;
  uint64_t shares_bytes = ring::kSharesBytes;
};

// Backs pages of a sparse object; false: the machine has no memory.
bool back_pages(int fd, uint64_t offset, uint64_t bytes);
uint64_t page_up(uint64_t value);
// A text with a number in brackets.
std::string numbered(const char* text, uint64_t value);

// Lays the areas out. Empty, or why it cannot be done.
std::string format_store(std::byte* base, uint64_t bytes, int fd, const StoreShape& shape);
// Every number an earlier server has written, before one is used. Empty, or what is wrong.
std::string check_store(const ring::StoreHeader& header, uint64_t bytes);
// Of each of the three tables.
inline uint64_t manifest_room(const ring::StoreHeader& header) {
  return header.manifest_offset[1] - header.manifest_offset[0];
}

ring::Digest checksum_of(const StoredSnapshot& snapshot, uint64_t seed);
// By pread: a table that no server has written may have no memory, and must not get any. Empty, or
// what is wrong with it.
std::string load_snapshot(int fd, uint64_t offset, uint64_t room, uint64_t seed,
                          StoredSnapshot* snapshot);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_STORE_STORE_AREAS_H_
