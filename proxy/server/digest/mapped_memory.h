// Memory of this process that the device sees as well.
#ifndef PYFT_SERVER_DIGEST_MAPPED_MEMORY_H_
#define PYFT_SERVER_DIGEST_MAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/backend.h"

namespace pyft::server {

class MappedMemory {
 public:
  // The table outlives the object.
  explicit MappedMemory(const backend::Table& table) : table_(table) {}
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;

  // Once, and zeros. Empty, or why there is none.
  std::string make(uint64_t bytes);
  std::byte* here() const { return here_; }
  uint64_t there() const { return there_; }

 private:
  const backend::Table& table_;
  std::byte* here_ = nullptr;
  uint64_t bytes_ = 0, there_ = 0;
  bool locked_ = false;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_DIGEST_MAPPED_MEMORY_H_
