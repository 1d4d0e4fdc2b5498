// Completion without host functions: a stream writes a word when it comes to a place, and a thread
// of this process that looks for it calls a function. The stream does not stand still meanwhile,
// which a host function of a real GPU costs some 10 us each time.
#ifndef PYFT_SERVER_STREAM_WORDS_H_
#define PYFT_SERVER_STREAM_WORDS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "server/session/device_calls.h"

namespace pyft::server {

// Zeros that streams of the device can write as words, at the host's address; never given back, as
// the device may still write. nullptr and why: it cannot.
std::atomic<uint64_t>* writable_words(const backend::Table& table, int ordinal, uint64_t bytes,
                                      std::string* why);

class StreamWords {
 public:
  // nullptr and why: the device cannot write words; host functions do instead.
  static std::unique_ptr<StreamWords> make(const backend::Table& table, int ordinal,
                                           std::string* why);
  ~StreamWords();
  StreamWords(const StreamWords&) = delete;
  StreamWords& operator=(const StreamWords&) = delete;

  // Has function(data) called in the looking thread some time after the stream has come here, for
  // one stream in the order of the calls. It must not block. Never, if the device fails before.
  // A CUresult.
  int signal(void* stream, void (*function)(void*), void* data);
  // Functions called so far, and 1: a number that changes while the device works.
  uint64_t progress() const { return called_.load(std::memory_order_relaxed) + 1; }

  // Lets the thread run, which enters the device first, until the object ends.
  class Watch {
   public:
    Watch(StreamWords* words, DeviceThreads& threads);

   private:
    std::jthread thread_;
  };

 private:
  struct Signal {
    uint32_t slot;
    uint64_t ticket;
    void (*function)(void*);
    void* data;
  };
  StreamWords(const backend::Table& table, std::atomic<uint64_t>* words);
  void watch(const std::stop_token& stop);
  bool call_ready();
  bool is_there(const Signal& signal) const;

  const backend::Table& table_;
  std::atomic<uint64_t>* words_;  // registered with the device
  std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::vector<uint32_t> free_;
  std::unordered_map<void*, std::deque<Signal>> waiting_;  // by stream
  std::atomic<uint64_t> outstanding_{0}, called_{0};
  uint64_t tickets_ = 0;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_STREAM_WORDS_H_
