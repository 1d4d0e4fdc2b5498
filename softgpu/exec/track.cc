#include "exec/track.h"

#include <sys/mman.h>

#include <cstring>

namespace softgpu::exec {

constexpr size_t kPageBytes = (size_t{1} << (Marks::kPageShift - kLineShift)) * sizeof(Mark);

// Marks that two threads add at once: the second one's go back.
Mark* Marks::add_page(uint64_t index) {
  void* fresh = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fresh == MAP_FAILED) std::abort();
  Mark* expected = nullptr;
  if (pages_[index].compare_exchange_strong(expected, static_cast<Mark*>(fresh))) {
    return static_cast<Mark*>(fresh);
  }
  munmap(fresh, kPageBytes);
  return expected;
}

// When the numbers are used up, old marks could be taken for new ones: all are forgotten.
uint32_t Marks::next_attempt() {
  constexpr uint32_t kAttempts = 1u << (32 - kWhoBits);
  if (++attempt_ == kAttempts) {
    attempt_ = 1;
    for (auto& page : pages_) {
      if (page) madvise(page, kPageBytes, MADV_DONTNEED);
    }
  }
  return attempt_ << kWhoBits;
}

// The exchange of a mark comes before the access it stands for, for every thread that looks.
bool Tracker::read_line(Mark* mark) {
  uint32_t seen = mark->load(std::memory_order_relaxed);
  while (!readable(seen)) {
    uint32_t next = many_;
    if ((seen ^ read_) >> kWhoBits) {
      next = read_;
    } else if (seen & kWrittenBy) {
      return false;
    }
    if (mark->compare_exchange_weak(seen, next)) return true;
  }
  return true;
}

bool Tracker::write_line(Mark* mark, uint64_t address) {
  uint32_t seen = mark->load(std::memory_order_relaxed);
  while (seen != written_) {
    const bool untouched = (seen ^ written_) >> kWhoBits;
    if (!untouched && seen != read_) return false;
    if (!mark->compare_exchange_weak(seen, written_)) continue;
    Saved& saved = lines_.emplace_back();
    saved.address = address & ~(kLineBytes - 1);
    std::memcpy(saved.bytes.data(), reinterpret_cast<const void*>(saved.address), kLineBytes);
    break;
  }
  return true;
}

bool Tracker::read_slowly(uint64_t address, uint32_t bytes) {
  const uint64_t end = address + bytes;
  for (uint64_t line = address & ~(kLineBytes - 1); line < end; line += kLineBytes) {
    if (!read_line(marks_->at(line))) return false;
  }
  return true;
}

bool Tracker::write_slowly(uint64_t address, uint32_t bytes) {
  const uint64_t end = address + bytes;
  for (uint64_t line = address & ~(kLineBytes - 1); line < end; line += kLineBytes) {
    if (!write_line(marks_->at(line), line)) return false;
  }
  return true;
}

// Calls f(lane, line) for lanes whose line is not that of the lane before.
template <class F>
static bool each_line(uint64_t address, const Row& offsets, uint32_t lanes, F&& f) {
  uint64_t last = 0;
  for (; lanes; lanes &= lanes - 1) {
    const uint64_t at = address + offsets.lane[__builtin_ctz(lanes)];
    const uint64_t line = at >> kLineShift;
    if (line == last) continue;
    last = line;
    if (!f(at)) return false;
  }
  return true;
}

bool Tracker::read_each(uint64_t address, const Row& offsets, uint32_t lanes) {
  return each_line(address, offsets, lanes, [this](uint64_t at) { return read(at, 1); });
}

bool Tracker::write_each(uint64_t address, const Row& offsets, uint32_t lanes) {
  return each_line(address, offsets, lanes, [this](uint64_t at) { return write(at, 1); });
}

void Tracker::undo() {
  for (const Saved& saved : lines_) {
    std::memcpy(reinterpret_cast<void*>(saved.address), saved.bytes.data(), kLineBytes);
  }
  lines_.clear();
}

}  // namespace softgpu::exec
