#include "checkpoint/store/remote_stores.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/digest/digest.h"
#include "checkpoint/store/store_areas.h"

namespace pyft::checkpoint {

namespace {
constexpr uint64_t kMostStores = 1024;  // more than a job has members
}  // namespace

RemoteStores::~RemoteStores() {
  for (auto& [which, other] : others_)
    if (other.base) munmap(other.base, other.bytes);
}

RemoteStores::Other& RemoteStores::open(const Which& which) {
  const auto [found, fresh] = others_.try_emplace(which);
  Other& other = found->second;
  if (!fresh) return other;
  const int fd = source_.open(which.first, which.second);
  if (fd < 0) {
    other.problem = "the agent has no such store";
    return other;
  }
  other.exists = true;
  map(fd, &other);
  if (other.problem.empty()) find_places(fd, &other);
  close(fd);
  return other;
}

void RemoteStores::map(int fd, Other* other) const {
  struct stat status{};
  if (fstat(fd, &status) != 0 || static_cast<uint64_t>(status.st_size) < ring::kPageBytes) {
    other->problem = "it is too small";
    return;
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  void* const at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    other->problem =
        "its [" + std::to_string(bytes >> 20) + "] MB cannot be mapped: " + std::strerror(errno);
    return;
  }
  other->base = static_cast<std::byte*>(at);
  other->bytes = bytes;
  const auto& header = *reinterpret_cast<const ring::StoreHeader*>(at);
  other->problem = check_store(header, bytes);
  if (other->problem.empty() && header.seed != key_.seed) other->problem = "it is of another job";
  other->heap_offset = header.heap_offset;
  other->heap_bytes = header.heap_bytes;
}

// Of the current snapshot, of one that waits or was before it, and of what is lent: what a table
// says may have been overwritten since, which the digests tell.
void RemoteStores::find_places(int fd, Other* other) const {
  const auto& header = *reinterpret_cast<const ring::StoreHeader*>(other->base);
  const uint64_t tables[] = {header.manifest_offset[0], header.manifest_offset[1],
                             header.lent_offset};
  for (const uint64_t offset : tables) {
    StoredSnapshot snapshot;
    if (!load_snapshot(fd, offset, manifest_room(header), key_.seed, &snapshot).empty()) continue;
    for (const ring::ManifestBlock& block : snapshot.blocks)
      if (block.heap_offset < other->heap_bytes &&
          block.bytes <= other->heap_bytes - block.heap_offset)
        other->places.emplace(block.digest, block.heap_offset);
  }
}

const std::byte* RemoteStores::content(const ring::ManifestBlock& block, std::string* problem) {
  problem->clear();
  for (uint64_t attempt = 0; attempt < kMostStores; ++attempt) {
    const Other& other = open({ring::owner_of(block), attempt});
    std::string why;
    if (const std::byte* const found = look(other, block, &why)) return found;
    if (problem->empty()) *problem = why;  // of the one that should have it
    if (!other.exists) break;
  }
  return nullptr;
}

const std::byte* RemoteStores::likely_content(const ring::ManifestBlock& block) {
  const Other& other = open({ring::owner_of(block), 0});
  const auto place = other.places.find(block.digest);
  if (!other.problem.empty() || place == other.places.end()) return nullptr;
  return block.bytes <= other.heap_bytes - place->second
             ? other.base + other.heap_offset + place->second
             : nullptr;
}

const std::byte* RemoteStores::look(const Other& other, const ring::ManifestBlock& block,
                                    std::string* problem) const {
  *problem = other.problem;
  if (!problem->empty()) return nullptr;
  const auto [first, last] = other.places.equal_range(block.digest);
  for (auto place = first; place != last; ++place) {
    const uint64_t offset = place->second;
    if (block.bytes > other.heap_bytes - offset) continue;
    const std::byte* const at = other.base + other.heap_offset + offset;
    if (digest(at, block.bytes, key_) == block.digest) return at;
  }
  *problem = first == last ? "no table of it names such a content" : "it has been overwritten";
  return nullptr;
}

}  // namespace pyft::checkpoint
