// Under the name of PyTorch's CUDA library: asks the clock as its watchdog does.
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>

#pragma GCC visibility push(default)

extern "C" {

int64_t torch_now() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// Waits for something that does not come, as a watchdog between two looks.
void torch_wait(int milliseconds) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, std::chrono::milliseconds(milliseconds), [] { return false; });
}

bool torch_future(int milliseconds) {
  std::promise<void> never;
  const auto end = never.get_future().wait_for(std::chrono::milliseconds(milliseconds));
  return end == std::future_status::ready;
}
}
