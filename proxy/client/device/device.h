// One attached device: its channel, and the client's tables for it.
//
// Threads: any. send() and call() may be used by several threads at once; the writer's order is the
// order on the device. A dead channel answers cudaErrorDevicesUnavailable for ever, after one
// sentence on stderr; nothing here waits without looking whether the other side lives.
#ifndef PYFT_CLIENT_DEVICE_DEVICE_H_
#define PYFT_CLIENT_DEVICE_DEVICE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "api/call_ids.h"
#include "api/wire_types.h"
#include "client/device/profiled.h"
#include "client/device/window.h"
#include "client/process/process.h"
#include "client/process/usage.h"
#include "pyft/handle.h"
#include "ring/attach_client.h"
#include "ring/completion.h"
#include "ring/reply.h"
#include "ring/writer.h"

namespace pyft::client {

struct Stream;

using Bytes = std::span<const std::byte>;

template <class T>
Bytes bytes_of(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}

struct Reply {
  int32_t code = 0;
  uint64_t values[5] = {};
  std::vector<std::byte> data;
};

enum class PayloadCopy { kCached, kPastCaches };

class Device {
 public:
  Device(int ordinal, ring::ClientAttachment attachment);

  int ordinal() const { return ordinal_; }
  // Address base of the device window.
  uint64_t window_base() const { return window_base_; }
  ring::Channel& channel() { return *attachment_.channel; }
  ring::Writer& writer() { return writer_; }

  // Appends a command. `body` is its struct, `tail` what follows it in the entry.
  cudaError_t send(uint16_t call, Bytes body, Bytes tail = {}, Bytes payload = {},
                   PayloadCopy how = PayloadCopy::kCached);
  // Appends and waits for the answer; the API's own code is in reply->code.
  cudaError_t call(uint16_t call, Bytes body, Reply* reply, Bytes tail = {}, Bytes payload = {});
  template <class Cmd>
  cudaError_t send(Call id, const Cmd& command) {
    return send(static_cast<uint16_t>(id), bytes_of(command));
  }
  // For calls whose answer is only a code, of CUresult or cudaError_t.
  template <class Cmd>
  cudaError_t confirm(Call id, const Cmd& command, Bytes payload = {}) {
    Reply reply;
    const cudaError_t error =
        call(static_cast<uint16_t>(id), bytes_of(command), &reply, {}, payload);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(reply.code);
  }

  // This process is rank `rank` of `size` in a communicator. The agent is told if none before was
  // as large: a part of all ranks does not say which of all this one is.
  void took_place(uint32_t rank, uint32_t size);

  // Marks in the log. Both bring the count of local calls in its header up to date.
  ring::Appended cut(Bytes scope = {}, uint64_t expected_seq = 0);
  // Behind a cut: whether the agent wants the program to stand still there; and the wait for it.
  bool begin_hold();
  void end_hold();
  void goodbye();

  // Work was appended on this stream: its next synchronisation needs a fence.
  void touch(Stream& stream);
  // Appends a fence unless the last one still covers everything; value to wait for in *value.
  cudaError_t fence(Stream& stream, uint64_t* value);
  // Appends the record of an event, which is a fence of its stream too.
  cudaError_t record(uint64_t event, Stream& stream, uint64_t value, uint64_t* stream_value);
  cudaError_t wait(uint32_t word, uint64_t value);
  cudaError_t synchronize(Stream& stream);
  cudaError_t synchronize_all();
  // The program learns that the stream has come to this value of its fence: what it does next may
  // rely on that.
  void observe(Stream& stream, uint64_t value);
  bool reached(uint32_t word, uint64_t value) { return ring::reached(channel(), word, value); }
  uint64_t next_value(uint32_t word);
  // 0, or the sticky error the server has set; or unavailable.
  cudaError_t health() const;
  // The failure of a command that nothing waited for: told once. Call after what has been asked for
  // is done, since the caller may take the error for that of its own call.
  cudaError_t late_error();
  const ring::Liveness& liveness() const { return liveness_; }
  // The result of calls after a failed wait; the first time it says why on stderr.
  cudaError_t fail(ring::WaitStatus status);

  Stream& null_stream() { return *null_stream_; }
  void add_stream(Stream* stream);
  // It gets no more work. What it was given goes on up to this value of its word: until then the
  // word is no other object's, and the device is waited for.
  void leave_stream(Stream* stream, uint64_t value);
  // Words of such streams that are done, and whose handles have ended, may be used again.
  void end_left_streams();

  // Device memory outside our own allocations: module variables handed out, memory of other
  // processes.
  void add_global(uint64_t address, uint64_t bytes);
  void remove_global(uint64_t address);
  bool has_global(uint64_t address);

  ProfiledEntries profiled;      // while a profiler looks on
  std::atomic<int> captures{0};  // under way on streams of this device
  std::mutex memory_mutex;       // guards the two windows
  Window memory;
  Window pinned;
  uint64_t pinned_used = 0;  // bytes with memory
  // Says when there is not much room for page-locked memory, or none for `refused` bytes more.
  void watch_pinned(uint64_t refused);
  // A kernel may be given page-locked memory, and it has not been said yet.
  std::atomic<bool> watches_pinned{false};
  std::set<uint64_t> pooled;  // memory of cudaMallocAsync, which no other process may open
  std::mutex bounce_mutex;    // one pageable device-to-host copy at a time

 private:
  cudaError_t append(uint16_t call, uint16_t flags, Bytes body, Bytes tail, Bytes payload,
                     PayloadCopy how, uint64_t* seq);
  void wake_agent() const;
  uint64_t work_of(const Stream& stream) const;
  Usage pinned_usage_;
  void count_local_calls();

  int ordinal_;
  ring::ClientAttachment attachment_;
  ring::ClientLiveness liveness_;
  ring::Writer writer_;
  ring::ReplySlots reply_slots_;
  uint64_t window_base_;
  std::atomic<int> over_{0};  // the error of all calls: the server is lost, or the process ends
  std::atomic<bool> too_large_{false};
  std::atomic<uint64_t> sent_{0};  // commands appended, without marks
  std::mutex count_mutex_;
  uint64_t counted_local_ = 0;
  std::atomic<uint64_t> device_work_{
      0};  // counts touches of all streams: what the null stream joins
  std::mutex stream_mutex_;
  std::mutex globals_mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> globals_;
  std::atomic<bool> any_globals_{false};
  std::vector<Stream*> streams_;
  std::vector<std::pair<Stream*, uint64_t>> left_;
  std::unique_ptr<Stream> null_stream_;
  std::unique_ptr<std::atomic<uint64_t>[]> values_;  // last value given out, by word
};

// The device, attached on first use. nullptr with *error set.
Device* attach(int ordinal, cudaError_t* error);
// For tests: makes a device of a channel that no agent gave.
Device* adopt(int ordinal, ring::ClientAttachment attachment);
// attach(current_device()).
Device* attached(cudaError_t* error);
// The device if it is attached already.
Device* attached_or_null(int ordinal);
// Device whose window contains the address: memory of any job device attached by this process.
Device* device_of_address(uint64_t address);
// Device whose pinned window contains all of the range.
Device* device_of_pinned(uint64_t address, uint64_t bytes);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_DEVICE_DEVICE_H_
