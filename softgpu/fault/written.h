// What a call of a library writes, said by itself, for faults that hit results. Of a kernel only a
// comparison tells that.
#ifndef SOFTGPU_FAULT_WRITTEN_H_
#define SOFTGPU_FAULT_WRITTEN_H_

#include <cstdint>
#include <vector>

namespace softgpu {

// `count` pieces of `bytes`, `step` bytes from one to the next: the columns of a matrix.
struct WrittenBlock {
  uint64_t address = 0, bytes = 0, count = 1, step = 0;
  std::vector<uint8_t> before;  // what lay there, piece after piece

  uint64_t size() const { return bytes * count; }
  // Of the n-th byte that is written. Precondition: n < size().
  uint64_t address_of(uint64_t n) const { return address + n / bytes * step + n % bytes; }
};

// While one lives, about_to_write() of its thread is kept in it.
class WrittenBlocks {
 public:
  explicit WrittenBlocks(bool wanted);
  ~WrittenBlocks();
  WrittenBlocks(const WrittenBlocks&) = delete;
  WrittenBlocks& operator=(const WrittenBlocks&) = delete;
  const std::vector<WrittenBlock>& all() const { return all_; }

 private:
  friend void about_to_write(uint64_t, uint64_t, uint64_t, uint64_t);
  std::vector<WrittenBlock> all_;
  WrittenBlocks* before_;
};

// For calls of libraries, by the thread that executes them, before they write. The range must be
// mapped. Costs nothing unless that is asked for.
void about_to_write(uint64_t address, uint64_t bytes, uint64_t count = 1, uint64_t step = 0);
template <class T>
void about_to_write(const T* address, int64_t count, int64_t increment = 1) {
  const auto step = static_cast<uint64_t>(increment < 0 ? -increment : increment) * sizeof(T);
  if (count <= 0) return;
  about_to_write(reinterpret_cast<uint64_t>(address), sizeof(T), static_cast<uint64_t>(count),
                 step);
}

}  // namespace softgpu

#endif  // SOFTGPU_FAULT_WRITTEN_H_
