// Which streams stand in collectives of the vendor's library, which cannot be asked. Each stream
// has two words of its own: it writes a number into one before a collective and into the other
// behind it. The words say all: nothing is called, nothing looks for them but the thread that asks,
// a mark takes no memory, and no number of marks can use up what completion words need.
#ifndef PYFT_SERVER_SESSION_COLLECTIVE_MARKS_H_
#define PYFT_SERVER_SESSION_COLLECTIVE_MARKS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"

namespace pyft::server {

// The dispatch thread makes marks, any thread asks. Whatever goes wrong must let the rank look as
// if it waited: a hang that is missed is found by the library's own deadline, but a rank that waits
// and is taken for a stuck one is killed for nothing.
class CollectiveMarks {
 public:
  static constexpr uint32_t kStreams = 1024;  // that have been in collectives and exist
  static constexpr uint64_t kBytes = 2 * kStreams * sizeof(uint64_t);

  // `words`: kBytes of zeros that streams can write at this address; they outlive the device's
  // work.
  CollectiveMarks(const backend::Table& table, std::atomic<uint64_t>* words)
      : table_(table), words_(words) {}
  CollectiveMarks(const CollectiveMarks&) = delete;
  CollectiveMarks& operator=(const CollectiveMarks&) = delete;

  // Around the call that puts a collective into the stream, whatever the call returns. One command
  // in the stream each.
  void enter(CUstream stream);
  void leave(CUstream stream);
  // It is destroyed, but goes on with what it has: the driver may give its address to another one.
  void forget(CUstream stream);
  // From now on something may wait for others that no mark tells of. Says why, once.
  void lose_sight(const std::string& why);
  bool sees() const { return sees_.load(std::memory_order_relaxed); }

  // How many streams have entered a collective and not left it.
  uint64_t waiting() const;
  // Grows with each mark that a stream comes to. All before it in the stream is done: a device that
  // hangs comes to those that do not need what hangs, each once, and then to no more.
  uint64_t passed() const;

 private:
  std::atomic<uint64_t>& entered(uint32_t place) const { return words_[2 * place]; }
  std::atomic<uint64_t>& left(uint32_t place) const { return words_[2 * place + 1]; }
  bool find(CUstream stream, uint32_t* place);
  bool take(uint32_t* place);
  void write(CUstream stream, std::atomic<uint64_t>& word, uint64_t number);

  const backend::Table& table_;
  std::atomic<uint64_t>* words_;
  std::array<uint64_t, kStreams> issued_{};  // by place: the last number
  std::unordered_map<CUstream, uint32_t> of_stream_;
  std::vector<uint32_t> forgotten_;  // free when all of their marks have come
  std::atomic<uint32_t> used_{0};    // places from the first on, also forgotten ones
  std::atomic<bool> sees_{true};
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_SESSION_COLLECTIVE_MARKS_H_
