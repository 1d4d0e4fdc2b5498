// A store in a memory object.
#ifndef PYFT_TESTS_RECOVERY_OBJECT_H_
#define PYFT_TESTS_RECOVERY_OBJECT_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/store/remote_stores.h"
#include "checkpoint/store/store.h"

namespace recovery_test {

using namespace pyft;  // NOLINT: a test

inline constexpr checkpoint::Store::Shape kSmall = {1 << 16, 1 << 16, 1 << 16, 1 << 12};
inline constexpr uint64_t kBeforeHeap = 1 << 20;  // more than all other areas take

// A sparse memory object, as the agent makes it.
struct Object {
  explicit Object(uint64_t size) : bytes(size), fd(memfd_create("store", MFD_CLOEXEC)) {
    if (ftruncate(fd, static_cast<off_t>(bytes)) == 0)
      at = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  Object(const Object&) = delete;
  ~Object() {
    munmap(at, bytes);
    close(fd);
  }
  std::unique_ptr<checkpoint::Store> open(std::string* error) const {
    return checkpoint::Store::open(at, bytes, fd, kSmall, error);
  }
  uint64_t bytes;
  int fd;
  std::byte* at = nullptr;
};

// One store for each that asks, or of one owner; of none: there is none.
struct StoreOf : checkpoint::StoreSource {
  explicit StoreOf(const Object* object, std::optional<uint64_t> owner = {})
      : object(object), owner(owner) {}
  int open(uint64_t asked, uint64_t attempt) override {
    return object && attempt == 0 && asked == owner.value_or(asked) ? dup(object->fd) : -1;
  }
  const Object* const object;
  const std::optional<uint64_t> owner;
};

}  // namespace recovery_test

#endif  // PYFT_TESTS_RECOVERY_OBJECT_H_
