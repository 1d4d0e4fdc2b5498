#include "client/device/callback.h"

#include <pthread.h>

#include <array>
#include <csignal>
#include <map>
#include <thread>

#include "api/commands.h"
#include "client/device/capture.h"

namespace pyft::client {
namespace {

struct Callback {
  std::function<void(cudaError_t)> function;
  bool wants_errors = false;
  bool in_graph = false;  // runs at each launch of the graph; never forgotten
  uint64_t runs = 0;
};

class UntilSticky final : public ring::Liveness {
 public:
  explicit UntilSticky(const Device& device) : device_(device) {}
  ring::WaitStatus check() const override {
    return device_.health() != cudaSuccess ? ring::WaitStatus::kEnding : device_.liveness().check();
  }

 private:
  const Device& device_;
};

// The functions of one device and the thread that runs them. Never destroyed: the thread may still
// wait while the process exits.
class Callbacks {
 public:
  explicit Callbacks(Device& device) : device_(device) {}
  // 0: the device is lost.
  uint64_t add(Callback callback);
  // False: it is not there any more.
  bool drop(uint64_t id);
  void keep_for_graph(uint64_t id);

 private:
  void start_thread();
  void serve();
  bool asked() const;
  void run_asked();
  void run(uint64_t id, uint64_t run);
  void fail_all(cudaError_t error);

  Device& device_;
  std::mutex mutex_;  // guards all below; never held while a function runs
  std::map<uint64_t, Callback> callbacks_;
  uint64_t next_id_ = 1;
  bool started_ = false, ended_ = false;
};

Callbacks& callbacks_of(Device& device) {
  static std::mutex mutex;
  static std::array<Callbacks*, kMaxDevices> all{};
  const std::lock_guard lock(mutex);
  Callbacks*& found = all[static_cast<size_t>(device.ordinal())];
  if (!found) found = new Callbacks(device);
  return *found;
}

uint64_t Callbacks::add(Callback callback) {
  const std::lock_guard lock(mutex_);
  if (ended_) return 0;
  if (!started_) start_thread();
  const uint64_t id = next_id_++;
  callbacks_.emplace(id, std::move(callback));
  return id;
}

bool Callbacks::drop(uint64_t id) {
  const std::lock_guard lock(mutex_);
  return callbacks_.erase(id) != 0;
}

void Callbacks::keep_for_graph(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = callbacks_.find(id);
  if (found != callbacks_.end()) found->second.in_graph = true;
}

// With all signals blocked, so that the program's handlers run in its own threads.
void Callbacks::start_thread() {
  started_ = true;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([this] { serve(); });
  pthread_setname_np(thread.native_handle(), "pyft-callback");
  thread.detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool Callbacks::asked() const {
  const ring::ControlPage& page = device_.channel().control();
  return page.callback_asked.load(std::memory_order_seq_cst) !=
         page.callback_done.load(std::memory_order_relaxed);
}

void Callbacks::serve() {
  ring::ControlPage& page = device_.channel().control();
  const UntilSticky until_sticky(device_);
  bool failed = false;
  for (;;) {
    const ring::Liveness& liveness = failed ? device_.liveness() : until_sticky;
    const ring::WaitStatus status =
        ring::wait_until(page.callback_asked_futex, &page.callback_asked_waiters, liveness,
                         [this] { return asked(); });
    if (status == ring::WaitStatus::kOk) {
      run_asked();
      continue;
    }
    // Of a failed device a question may still come that it asked before.
    failed = status == ring::WaitStatus::kEnding;
    const cudaError_t error = failed ? device_.health() : device_.fail(status);
    fail_all(error);
    if (error == cudaErrorDevicesUnavailable) return;
  }
}

// Read again until it fits together: a new server may ask while a question of the old one is here.
void Callbacks::run_asked() {
  ring::ControlPage& page = device_.channel().control();
  uint64_t question = 0, id = 0, run_number = 0;
  do {
    question = page.callback_asked.load(std::memory_order_seq_cst);
    id = page.callback_id.load(std::memory_order_seq_cst);
    run_number = page.callback_run.load(std::memory_order_seq_cst);
  } while (question != page.callback_asked.load(std::memory_order_seq_cst));
  run(id, run_number);
  page.callback_done.store(question, std::memory_order_seq_cst);
  page.callback_done_futex.fetch_add(1, std::memory_order_seq_cst);
  if (page.callback_done_waiters.load(std::memory_order_seq_cst))
    ring::futex_wake(page.callback_done_futex);
}

void Callbacks::run(uint64_t id, uint64_t run_number) {
  std::function<void(cudaError_t)> function;
  {
    const std::lock_guard lock(mutex_);
    const auto found = callbacks_.find(id);
    if (found == callbacks_.end() || found->second.runs >= run_number) return;
    found->second.runs = run_number;
    function = found->second.function;
    if (!found->second.in_graph) callbacks_.erase(found);
  }
  set_in_callback(true);
  function(cudaSuccess);
  set_in_callback(false);
}

void Callbacks::fail_all(cudaError_t error) {
  std::map<uint64_t, Callback> lost;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    lost.swap(callbacks_);
  }
  set_in_callback(true);
  for (auto& [id, callback] : lost)
    if (callback.wants_errors) callback.function(error);
  set_in_callback(false);
}

// While a device captures the server says whether the stream takes part in it.
cudaError_t append(Stream& stream, Callbacks& all, uint64_t id) {
  Device& device = stream.device;
  const cmd::cudaLaunchHostFunc body{stream.handle, id};
  if (!device.captures.load(std::memory_order_relaxed))
    return device.send(Call::cudaLaunchHostFunc, body);
  Reply reply;
  const cudaError_t error =
      device.call(static_cast<uint16_t>(Call::cudaLaunchHostFunc), bytes_of(body), &reply);
  if (error != cudaSuccess) return error;
  if (reply.code == 0 && reply.values[0]) all.keep_for_graph(id);
  return static_cast<cudaError_t>(reply.code);
}

cudaError_t launch(Stream& stream, Callback callback) {
  if (const cudaError_t error = stream.device.health(); error != cudaSuccess) return error;
  Callbacks& all = callbacks_of(stream.device);
  const uint64_t id = all.add(std::move(callback));
  if (!id) return cudaErrorDevicesUnavailable;
  const cudaError_t error = append(stream, all, id);
  stream.device.touch(stream);
  // Without it, its thread has told the function already.
  return error != cudaSuccess && all.drop(id) ? error : cudaSuccess;
}

}  // namespace

cudaError_t launch_host_function(cudaStream_t handle, cudaHostFn_t function, void* data) {
  if (!function) return cudaErrorInvalidValue;
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  if (!stream) return error;
  return launch(*stream, {[function, data](cudaError_t) { function(data); }});
}

// No graph can hold a callback: it is told its stream.
cudaError_t add_callback(cudaStream_t handle, std::function<void(cudaError_t)> function) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  if (!stream) return error;
  if ((error = check_wait(*stream)) != cudaSuccess) return error;
  return launch(*stream, {std::move(function), true});
}

}  // namespace pyft::client
