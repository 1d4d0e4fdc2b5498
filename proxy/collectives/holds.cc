#include "collectives/holds.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collectives/threads.h"

namespace pyft::collectives {
namespace {

constexpr uint32_t kPlaces = 16384;  // that streams have not come to
constexpr long kNapNs = 20'000;
constexpr unsigned long kTimerSlackNs = 1'000;
constexpr size_t kSmallest = 64 << 10;

struct Words {
  std::atomic<uint64_t> arrived, released;
};

struct Place {
  uint32_t index;
  uint64_t ticket;
  bool holds;
  void (*function)(void*);
  void* data;
};

struct State {
  std::mutex mutex;
  std::condition_variable some;
  Words* words = nullptr;  // registered, kPlaces of them
  std::vector<uint32_t> free;
  std::vector<Place> open;
  uint64_t tickets = 0;
  std::unordered_map<size_t, std::vector<std::byte*>> staging;  // by size, not in use
  std::unordered_map<std::byte*, size_t> sizes;
};

// Never destroyed: its thread ends with the process.
State& state() {
  static auto* const made = new State;
  return *made;
}

Driver found;
std::atomic<unsigned long long> held{0};

void* registered(size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (found.register_memory(memory, bytes, kFlags) == CUDA_SUCCESS) return memory;
  munmap(memory, bytes);
  return nullptr;
}

void run_held(void* data) {
  Place* const place = static_cast<Place*>(data);
  ++held;
  place->function(place->data);
  --held;
  State& s = state();
  s.words[place->index].released.store(place->ticket, std::memory_order_release);
  const std::scoped_lock lock(s.mutex);
  s.free.push_back(place->index);
  delete place;
}

std::vector<Place> take_arrived(State& s) {
  std::vector<Place> arrived;
  const std::scoped_lock lock(s.mutex);
  std::erase_if(s.open, [&](const Place& place) {
    if (s.words[place.index].arrived.load(std::memory_order_acquire) != place.ticket) return false;
    arrived.push_back(place);
    if (!place.holds) s.free.push_back(place.index);
    return true;
  });
  return arrived;
}

[[noreturn]] void look(State& s) {
  pthread_setname_np(pthread_self(), "pyft-holds");
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  for (;;) {
    {
      std::unique_lock lock(s.mutex);
      s.some.wait(lock, [&] { return !s.open.empty(); });
    }
    const std::vector<Place> arrived = take_arrived(s);
    for (const Place& place : arrived)
      if (place.holds)
        run_in_thread(run_held, new Place(place));
      else
        place.function(place.data);
    if (!arrived.empty()) continue;
    const timespec nap{0, kNapNs};
    nanosleep(&nap, nullptr);
  }
}

// Makes the words with the first place, when a context is there.
bool open_place(bool holds, void (*function)(void*), void* data, Place* out) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (!s.words) {
    s.words = static_cast<Words*>(registered(kPlaces * sizeof(Words)));
    if (!s.words) return false;
    for (uint32_t index = kPlaces; index > 0; --index) s.free.push_back(index - 1);
    std::thread([&s] { look(s); }).detach();
  }
  if (s.free.empty()) return false;
  *out = {s.free.back(), ++s.tickets, holds, function, data};
  s.free.pop_back();
  return true;
}

int put(CUstream stream, bool holds, void (*function)(void*), void* data) {
  Place place{};
  if (!open_place(holds, function, data, &place)) return CUDA_ERROR_OUT_OF_MEMORY;
  State& s = state();
  Words& words = s.words[place.index];
  const auto address = [](auto& word) { return reinterpret_cast<CUdeviceptr>(&word); };
  int code = found.write_value(stream, address(words.arrived), place.ticket, 0);
  if (!code && holds)
    code =
        found.wait_value(stream, address(words.released), place.ticket, CU_STREAM_WAIT_VALUE_GEQ);
  // After a failure the place is lost: the stream may still write to it.
  if (code) return code;
  const std::scoped_lock lock(s.mutex);
  s.open.push_back(place);
  s.some.notify_one();
  return 0;
}

}  // namespace

bool use_driver(void* handle) {
  const auto get = [handle](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(handle, name));
    return *function != nullptr;
  };
  return get(&found.to_host, "cuMemcpyDtoHAsync_v2") &&
         get(&found.to_device, "cuMemcpyHtoDAsync_v2") &&
         get(&found.register_memory, "cuMemHostRegister_v2") &&
         get(&found.write_value, "cuStreamWriteValue64_v2") &&
         get(&found.wait_value, "cuStreamWaitValue64_v2") &&
         get(&found.current_device, "cuCtxGetDevice");
}

const Driver& driver() {
  return found;
}

int notify(CUstream stream, void (*function)(void*), void* data) {
  return put(stream, false, function, data);
}

int hold(CUstream stream, void (*function)(void*), void* data) {
  return put(stream, true, function, data);
}

unsigned long long held_now() {
  return held.load();
}

std::byte* take_staging(size_t bytes) {
  const size_t size = std::bit_ceil(std::max(bytes, kSmallest));
  State& s = state();
  {
    const std::scoped_lock lock(s.mutex);
    auto& free = s.staging[size];
    if (!free.empty()) {
      std::byte* const memory = free.back();
      free.pop_back();
      return memory;
    }
  }
  auto* const memory = static_cast<std::byte*>(registered(size));
  const std::scoped_lock lock(s.mutex);
  if (memory) s.sizes[memory] = size;
  return memory;
}

void give_staging(std::byte* memory) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (memory) s.staging[s.sizes.at(memory)].push_back(memory);
}

}  // namespace pyft::collectives
