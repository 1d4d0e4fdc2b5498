// Whether the threads that run blocks of one launch side by side get into each other's way.
//
// Blocks of a launch are dealt out to threads in the order a single thread would take, and every
// line of memory remembers which thread has read or written it. As long as no thread touches what
// another one writes, the outcome is that of a single thread, bit for bit, whatever the timing. The
// first access that breaks this ends the attempt: what was written is put back from the logs, and
// the blocks run again one after the other. So nothing has to be known about a kernel beforehand:
// races, atomics and look-back are all seen here.
#ifndef SOFTGPU_EXEC_TRACK_H_
#define SOFTGPU_EXEC_TRACK_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/windows.h"
#include "exec/simd.h"

namespace softgpu::exec {

inline constexpr uint32_t kMaxThreads = 32;
inline constexpr int kLineShift = 6;
inline constexpr uint64_t kLineBytes = uint64_t{1} << kLineShift;

// A line's mark: the attempt in the upper bits, below them which threads have touched it. Marks of
// earlier attempts count as none, so nothing is ever cleared.
inline constexpr uint32_t kWhoBits = 8;
inline constexpr uint32_t kReadBy = 1;     // + thread
inline constexpr uint32_t kManyRead = 64;  // two threads or more
inline constexpr uint32_t kWrittenBy = 128;

using Mark = std::atomic<uint32_t>;

// The marks of all memory, in pages that appear when they are first asked for.
class Marks {
 public:
  static constexpr int kPageShift = 30;  // bytes of memory per page of marks
  // The mark of the line at `address`; the page's marks follow it. Precondition: below 2^47.
  Mark* at(uint64_t address) {
    Mark* page = pages_[address >> kPageShift].load(std::memory_order_acquire);
    if (!page) [[unlikely]] {
      page = add_page(address >> kPageShift);
    }
    return page + ((address >> kLineShift) & ((uint64_t{1} << (kPageShift - kLineShift)) - 1));
  }
  // The upper bits of a new attempt.
  uint32_t next_attempt();

 private:
  Mark* add_page(uint64_t index);

  std::array<std::atomic<Mark*>, size_t{1} << (47 - kPageShift)> pages_{};
  uint32_t attempt_ = 0;
};

// The view of one thread. All calls are for memory that is mapped; false means a conflict.
class Tracker {
 public:
  void begin(Marks* marks, uint32_t attempt, uint32_t thread) {
    marks_ = marks;
    read_ = attempt | (kReadBy + thread);
    many_ = attempt | kManyRead;
    written_ = attempt | (kWrittenBy + thread);
    lines_.clear();
  }

  bool read(uint64_t address, uint32_t bytes) {
    if (!markable(address)) return false;
    const Mark* mark = marks_->at(address);
    const uint64_t count = lines_of(address, bytes);
    if (crosses_page(address, bytes)) return read_slowly(address, bytes);
    for (uint64_t i = 0; i < count; ++i) {
      if (!readable(mark[i].load(std::memory_order_relaxed))) return read_slowly(address, bytes);
    }
    return true;
  }

  bool write(uint64_t address, uint32_t bytes) {
    if (!is_device_memory(address)) return false;
    const Mark* mark = marks_->at(address);
    const uint64_t count = lines_of(address, bytes);
    if (crosses_page(address, bytes)) return write_slowly(address, bytes);
    for (uint64_t i = 0; i < count; ++i) {
      if (mark[i].load(std::memory_order_relaxed) != written_) return write_slowly(address, bytes);
    }
    return true;
  }

  // Elements of at most a line at address + offsets[lane], offsets below 2 GiB.
  bool read_each(uint64_t address, const Row& offsets, uint32_t lanes);
  bool write_each(uint64_t address, const Row& offsets, uint32_t lanes);

  // Puts back what was there before this thread wrote.
  void undo();
  size_t lines_written() const { return lines_.size(); }

 private:
  struct Saved {
    uint64_t address;
    std::array<uint8_t, kLineBytes> bytes;
  };

  static bool markable(uint64_t address) { return address >> 47 == 0; }
  static uint64_t lines_of(uint64_t address, uint32_t bytes) {
    return ((address + bytes - 1) >> kLineShift) - (address >> kLineShift) + 1;
  }
  static bool crosses_page(uint64_t address, uint32_t bytes) {
    return (address ^ (address + bytes - 1)) >> Marks::kPageShift;
  }
  bool readable(uint32_t mark) const { return mark == read_ || mark == written_ || mark == many_; }
  bool read_slowly(uint64_t address, uint32_t bytes);
  bool write_slowly(uint64_t address, uint32_t bytes);
  bool read_line(Mark* mark);
  bool write_line(Mark* mark, uint64_t address);

  Marks* marks_ = nullptr;
  uint32_t read_ = 0, many_ = 0, written_ = 0;
  std::vector<Saved> lines_;
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_TRACK_H_
