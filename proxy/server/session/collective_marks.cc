#include "server/session/collective_marks.h"

#include <algorithm>

#include "pyft/log.h"

namespace pyft::server {

void CollectiveMarks::enter(CUstream stream) {
  uint32_t place = 0;
  if (!find(stream, &place)) return lose_sight("too many streams take part in collectives");
  write(stream, entered(place), ++issued_[place]);
}

// Behind an `enter` that found no place, or whose mark the stream did not take, there is nothing to
// be told any more. If only this one is not taken, the stream looks as if it waited from then on.
void CollectiveMarks::leave(CUstream stream) {
  const auto found = of_stream_.find(stream);
  if (found == of_stream_.end()) return;
  write(stream, left(found->second), issued_[found->second]);
}

void CollectiveMarks::forget(CUstream stream) {
  const auto found = of_stream_.find(stream);
  if (found == of_stream_.end()) return;
  forgotten_.push_back(found->second);
  of_stream_.erase(found);
}

void CollectiveMarks::lose_sight(const std::string& why) {
  if (!sees_.exchange(false)) return;
  PYFT_LOG(kServer, kWarning,
           "where this rank uses NCCL with others, only NCCL's own deadline finds "
           "kernels of it that hang: %s",
           why.c_str());
}

// A stream writes both words in the order of its collectives. The second is read first: should the
// stream go on meanwhile, it rather looks as if it waited.
uint64_t CollectiveMarks::waiting() const {
  uint64_t streams = 0;
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t place = 0; place < used; ++place) {
    const uint64_t out = left(place).load(std::memory_order_acquire);
    streams += entered(place).load(std::memory_order_acquire) > out;
  }
  return streams;
}

uint64_t CollectiveMarks::passed() const {
  uint64_t marks = 0;
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t place = 0; place < used; ++place)
    marks += entered(place).load(std::memory_order_relaxed) +
             left(place).load(std::memory_order_relaxed);
  return marks;
}

bool CollectiveMarks::find(CUstream stream, uint32_t* place) {
  const auto found = of_stream_.find(stream);
  if (found == of_stream_.end() && !take(place)) return false;
  if (found == of_stream_.end())
    of_stream_.emplace(stream, *place);
  else
    *place = found->second;
  return true;
}

// A destroyed stream's place is free when the last of its marks has come: until then the stream may
// stand in a collective, and what it writes would be taken for its successor's. Numbers go on.
bool CollectiveMarks::take(uint32_t* place) {
  const auto done = [this](uint32_t one) {
    return entered(one).load() == issued_[one] && left(one).load() == issued_[one];
  };
  const auto free = std::ranges::find_if(forgotten_, done);
  if (free != forgotten_.end()) {
    *place = *free;
    forgotten_.erase(free);
    return true;
  }
  if (used_.load() == kStreams) return false;
  *place = used_.fetch_add(1, std::memory_order_release);
  return true;
}

void CollectiveMarks::write(CUstream stream, std::atomic<uint64_t>& word, uint64_t number) {
  const auto address = reinterpret_cast<CUdeviceptr>(&word);
  const int code = table_.cuStreamWriteValue64_v2(stream, address, number, 0);
  if (code) lose_sight("[cuStreamWriteValue64_v2] fails with code [" + std::to_string(code) + "]");
}

}  // namespace pyft::server
