// A store whose contents are named by letters.
#ifndef PYFT_TESTS_CHECKPOINT_STORED_H_
#define PYFT_TESTS_CHECKPOINT_STORED_H_

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "pyft/unique_fd.h"
#include "recovery/object.h"

namespace checkpoint_test {

using namespace recovery_test;  // NOLINT: a test

inline constexpr uint64_t kHeap = uint64_t{1} << 20;
inline constexpr uint64_t kBlock = 640;  // a multiple of what the heap aligns to

// The store believes what digest it is told.
inline ring::Digest digest_of(char letter) {
  return {static_cast<uint64_t>(letter), 7};
}

struct Stored {
  explicit Stored(const checkpoint::StoreShape& shape = kSmall)
      : shape(shape), object(kBeforeHeap + kHeap) {
    CHECK_EQ(restart(), "");
  }
  // By a new server: empty, or why not.
  std::string restart() {
    store.reset();
    std::string error = "of something before";
    store = checkpoint::Store::open(object.at, object.bytes, object.fd, shape, &error);
    CHECK_EQ(store == nullptr, !error.empty());
    return error;
  }
  uint64_t filled(char letter, uint64_t bytes = kBlock) const {
    const uint64_t offset = store->reserve(bytes);
    CHECK(offset != checkpoint::Heap::kNone);
    std::memset(store->at(offset), letter, bytes);
    return offset;
  }
  bool add(char letter, uint64_t address = 0x1000, uint64_t bytes = kBlock) const {
    return store->add_stored(address, bytes, digest_of(letter), filled(letter, bytes));
  }
  bool knows(char letter, uint64_t bytes = kBlock) const {
    return store->find({0, bytes, digest_of(letter), 0}) != nullptr;
  }
  ring::Manifest manifest(uint64_t cut, uint64_t step) const {
    ring::Manifest made{};
    made.cut = cut;
    made.seq = 10 * cut;
    made.step = step;
    made.bytes = 99;  // which the store knows better
    return made;
  }
  // A snapshot of these contents; it waits.
  bool write(uint64_t cut, const std::string& letters, uint64_t step = 0) const {
    uint64_t address = 0x1000;
    for (const char letter : letters) add(letter, address += kBlock);
    return store->write(manifest(cut, step), {});
  }
  void publish(uint64_t cut, const std::string& letters, uint64_t step = 0) const {
    CHECK(write(cut, letters, step));
    store->promote();
  }
  // What the committed snapshot contains, by letters.
  std::string contents() const {
    std::string letters;
    for (const ring::ManifestBlock& block : store->committed().blocks)
      letters += static_cast<char>(*store->at(block.heap_offset));
    return letters;
  }
  uint64_t used() const { return store->header().heap_used / kBlock; }
  uint64_t cut() const { return store->committed().manifest.cut; }
  // Of the machine there is no memory any more, or again.
  void lose_memory() {
    memory.reset(dup(object.fd));
    const UniqueFd only_read(
        open(("/proc/self/fd/" + std::to_string(object.fd)).c_str(), O_RDONLY | O_CLOEXEC));
    dup2(only_read.get(), object.fd);
  }
  void find_memory() const { dup2(memory.get(), object.fd); }

  checkpoint::StoreShape shape;
  Object object;
  UniqueFd memory;
  std::unique_ptr<checkpoint::Store> store;
};

}  // namespace checkpoint_test

#endif  // PYFT_TESTS_CHECKPOINT_STORED_H_
