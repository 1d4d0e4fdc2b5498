#include "server/stream_words.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "ring/wait.h"

namespace pyft::server {

namespace {

constexpr uint32_t kSlots = 16384;  // signals that may be open at once
constexpr uint64_t kBytes = kSlots * sizeof(uint64_t);
constexpr long kNapNs = 20'000;  // between looks, after the spinning
constexpr unsigned long kTimerSlackNs = 1'000;
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

std::string refused(const char* call, int code) {
  return std::string("[") + call + "] fails with code [" + std::to_string(code) + "]";
}

}  // namespace

std::atomic<uint64_t>* writable_words(const backend::Table& table, int ordinal, uint64_t bytes,
                                      std::string* why) {
  if (!table.cuStreamWriteValue64_v2 || !table.cuDeviceGetAttribute ||
      !table.cuMemHostRegister_v2 || !table.cuMemHostGetDevicePointer_v2) {
    *why = "the driver lacks a function";
    return nullptr;
  }
  int able = 0;
  table.cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, ordinal);
  if (!able) {
    *why = "streams of this device write no 64-bit words";
    return nullptr;
  }
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    *why = "there is no memory for them";
    return nullptr;
  }
  CUdeviceptr address = 0;
  int code = table.cuMemHostRegister_v2(memory, bytes,
                                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (code) *why = refused("cuMemHostRegister_v2", code);
  if (!code) code = table.cuMemHostGetDevicePointer_v2(&address, memory, 0);
  if (!code && address == reinterpret_cast<uint64_t>(memory))
    return static_cast<std::atomic<uint64_t>*>(memory);
  if (why->empty()) *why = "the device has the host's memory at other addresses";
  munmap(memory, bytes);
  return nullptr;
}

std::unique_ptr<StreamWords> StreamWords::make(const backend::Table& table, int ordinal,
                                               std::string* why) {
  std::atomic<uint64_t>* const words = writable_words(table, ordinal, kBytes, why);
  return words ? std::unique_ptr<StreamWords>(new StreamWords(table, words)) : nullptr;
}

StreamWords::StreamWords(const backend::Table& table, std::atomic<uint64_t>* words)
    : table_(table), words_(words) {
  for (uint32_t slot = kSlots; slot > 0; --slot) free_.push_back(slot - 1);
}

// The memory stays: the device may still write to it.
StreamWords::~StreamWords() = default;

int StreamWords::signal(void* stream, void (*function)(void*), void* data) {
  Signal made{0, 0, function, data};
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      made.slot = free_.back();
      made.ticket = ++tickets_;
      free_.pop_back();
    }
  }
  if (!made.ticket) return table_.cuLaunchHostFunc(static_cast<CUstream>(stream), function, data);
  // Not under the lock: the driver may block until the device has room for the command.
  const auto address = reinterpret_cast<CUdeviceptr>(&words_[made.slot]);
  const int code =
      table_.cuStreamWriteValue64_v2(static_cast<CUstream>(stream), address, made.ticket, 0);
  const std::lock_guard lock(mutex_);
  if (code) {
    free_.push_back(made.slot);
    return code;
  }
  waiting_[stream].push_back(made);
  if (outstanding_.fetch_add(1) == 0) arrived_.notify_one();
  return 0;
}

bool StreamWords::is_there(const Signal& signal) const {
  return words_[signal.slot].load(std::memory_order_acquire) == signal.ticket;
}

bool StreamWords::call_ready() {
  std::vector<Signal> ready;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [stream, signals] : waiting_)
      while (!signals.empty() && is_there(signals.front())) {
        ready.push_back(signals.front());
        free_.push_back(signals.front().slot);
        signals.pop_front();
      }
  }
  for (const Signal& signal : ready) {
    signal.function(signal.data);
    called_.fetch_add(1, std::memory_order_relaxed);
  }
  outstanding_.fetch_sub(ready.size());
  return !ready.empty();
}

void StreamWords::watch(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "pyft-words");
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      if (!arrived_.wait(lock, stop, [&] { return outstanding_.load() > 0; })) return;
    }
    if (ring::spin_until([&] { return call_ready(); })) continue;
    const timespec nap{0, kNapNs};
    nanosleep(&nap, nullptr);
  }
}

StreamWords::Watch::Watch(StreamWords* words, DeviceThreads& threads) {
  if (!words) return;
  thread_ = std::jthread([words, &threads](const std::stop_token& stop) {
    threads.enter();
    words->watch(stop);
  });
}

}  // namespace pyft::server
