#include "checkpoint/store/heap.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "checkpoint/store/spare_memory.h"
#include "checkpoint/throttle.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kBackingStep = uint64_t{2} << 20;
constexpr uint64_t kKeepFree = uint64_t{64} << 20;
constexpr uint64_t kPartOfLeft = 16, kMostAllowed = uint64_t{256} << 20;

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// What is taken for so many bytes: no two contents lie in one place, not even empty ones.
uint64_t room_for(uint64_t bytes) {
  return Heap::rounded(std::max<uint64_t>(bytes, 1));
}

}  // namespace

Heap::Heap(int fd, uint64_t file_offset, uint64_t bytes, std::function<uint64_t()> spare)
    : fd_(fd),
      file_offset_(file_offset),
      bytes_(bytes / kAlign * kAlign),
      spare_(std::move(spare)) {
  if (bytes_) add_free(0, bytes_);
}

Heap::Heap(int fd, uint64_t file_offset, uint64_t bytes)
    : Heap(fd, file_offset, bytes, [] { return spare_memory(); }) {}

void Heap::add_free(uint64_t offset, uint64_t bytes) {
  free_[offset] = bytes;
  fit_.insert({bytes, offset});
}

void Heap::drop_free(std::map<uint64_t, uint64_t>::iterator part) {
  fit_.erase({part->second, part->first});
  free_.erase(part);
}

uint64_t Heap::take(uint64_t bytes) {
  errno = 0;
  const uint64_t wanted = room_for(bytes);
  if (wanted < bytes) return kNone;
  const auto fit = fit_.lower_bound({wanted, 0});
  if (fit == fit_.end()) return kNone;
  const auto [size, offset] = *fit;
  if (!back(offset + wanted)) return kNone;
  drop_free(free_.find(offset));
  if (size > wanted) add_free(offset + wanted, size - wanted);
  used_ += wanted;
  touch(offset + wanted);
  return offset;
}

// Up to touched_ all parts have been taken at some time, and the last free part begins before it.
void Heap::touch(uint64_t end) {
  throttle_new(end - std::min(end, touched_));
  touched_ = std::max(touched_, end);
}

void Heap::take_at(uint64_t offset, uint64_t bytes) {
  const uint64_t wanted = room_for(bytes);
  const auto part = std::prev(free_.upper_bound(offset));
  const auto [begin, size] = *part;
  drop_free(part);
  if (offset > begin) add_free(begin, offset - begin);
  const uint64_t end = offset + wanted;
  if (begin + size > end) add_free(end, begin + size - end);
  used_ += wanted;
  touched_ = std::max(touched_, end);
  backed_ = std::max(backed_, std::min(bytes_, round_up(end, kBackingStep)));
}

void Heap::give(uint64_t offset, uint64_t bytes) {
  uint64_t size = room_for(bytes);
  used_ -= size;
  auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      drop_free(before);
    }
  }
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    drop_free(next);
  }
  add_free(offset, size);
}

// False: `errno` says why.
bool Heap::back(uint64_t end) {
  if (end <= backed_) return true;
  const uint64_t to = std::min(bytes_, round_up(end, kBackingStep));
  if (!may_grow(to - backed_)) {
    errno = ENOMEM;
    return false;
  }
  while (fallocate(fd_, 0, static_cast<off_t>(file_offset_ + backed_),
                   static_cast<off_t>(to - backed_)) != 0)
    if (errno != EINTR) return false;
  backed_ = to;
  return true;
}

// The kernel gives pages beyond what there is as well, and ends a process for them. Other ranks
// grow at the same time: each takes a part of what is left before it looks again.
bool Heap::may_grow(uint64_t bytes) {
  if (bytes > allowed_) {
    const uint64_t left = spare_();
    if (left < bytes) return false;
    allowed_ = std::max(bytes, std::min(left / kPartOfLeft, kMostAllowed));
  }
  allowed_ -= bytes;
  return true;
}

uint64_t Heap::end_of_used() const {
  if (free_.empty()) return bytes_;
  const auto last = std::prev(free_.end());
  return last->first + last->second == bytes_ ? last->first : bytes_;
}

void Heap::note_extent() {
  extents_[noted_++ % kRemembered] = end_of_used();
}

void Heap::trim() {
  const uint64_t used_to = end_of_used();
  if (backed_ < used_to + kKeepFree) return;
  const uint64_t needed = std::max(used_to + used_, *std::ranges::max_element(extents_));
  const uint64_t begin = round_up(needed, kBackingStep);
  if (begin >= backed_ ||
      fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(file_offset_ + begin), static_cast<off_t>(backed_ - begin)) != 0)
    return;
  backed_ = begin;
  touched_ = std::min(touched_, begin);
}

}  // namespace pyft::checkpoint
