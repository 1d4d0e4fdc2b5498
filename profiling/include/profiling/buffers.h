// Where activity records go: into buffers that the program lends, as CUPTI's activity API has it.
#ifndef PROFILING_BUFFERS_H_
#define PROFILING_BUFFERS_H_

#include <cupti_activity.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace profiling {

// Threads: any. The callbacks are the program's, which may lock something of its own in them: a
// buffer is given back without a lock of ours.
class Buffers {
 public:
  using Request = CUpti_BuffersCallbackRequestFunc;
  using Complete = CUpti_BuffersCallbackCompleteFunc;

  void set_callbacks(Request request, Complete complete);
  bool has_callbacks();

  // Appends a record. Without a buffer that has room for it, it is dropped, and counted.
  void put(const void* record, size_t bytes);
  template <class Record>
  void put(const Record& record) {
    put(&record, sizeof record);
  }
  // Gives the buffer back that is being filled.
  void flush();

  void drop(uint64_t records) { dropped_.fetch_add(records, std::memory_order_relaxed); }
  // Records dropped since the last call.
  uint64_t take_dropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

 private:
  struct Buffer {
    uint8_t* bytes = nullptr;
    size_t size = 0, used = 0;
    size_t most = 0, count = 0;  // records; most of 0: as many as there is room for
    bool takes(size_t record) const {
      return bytes && used + record <= size && (!most || count < most);
    }
  };
  void give_back(const Buffer& buffer, Complete complete);

  std::mutex mutex_;
  Request request_ = nullptr;
  Complete complete_ = nullptr;
  Buffer filling_;
  std::atomic<uint64_t> dropped_{0};
};

// Bytes of a record of that kind; 0: it is none of those that are written here.
size_t record_bytes(CUpti_ActivityKind kind);

// The record behind *record in a buffer, the first one if that is null.
CUptiResult next_record(uint8_t* buffer, size_t valid, CUpti_Activity** record);

}  // namespace profiling

#endif  // PROFILING_BUFFERS_H_
