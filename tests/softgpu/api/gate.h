// A host function that holds up its stream until the test lets it go.
#ifndef SOFTGPU_TESTS_API_GATE_H_
#define SOFTGPU_TESTS_API_GATE_H_

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <mutex>

class Gate {
 public:
  // Puts the gate on the stream: what follows waits until open().
  void block(cudaStream_t stream) {
    cudaLaunchHostFunc(stream, [](void* self) { static_cast<Gate*>(self)->wait(); }, this);
  }

  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  // Returns once the stream has reached the gate.
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false;
};

#endif  // SOFTGPU_TESTS_API_GATE_H_
