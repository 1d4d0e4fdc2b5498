// Signals of streams by words, over a device of this test's making that writes when it is told to.
#include "server/stream_words.h"

#include <chrono>
#include <map>
#include <thread>

#include "check.h"
#include "comes.h"

using pyft::backend::Table;
using pyft::server::StreamWords;

namespace {

struct Write {
  CUdeviceptr address;
  cuuint64_t value;
};

std::mutex mutex;
std::map<CUstream, std::deque<Write>> queued;
int able = 1, write_code = 0, host_functions = 0;

CUresult write_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  const std::lock_guard lock(mutex);
  if (write_code == 0) queued[stream].push_back({address, value});
  return static_cast<CUresult>(write_code);
}

CUresult host_function(CUstream, CUhostFn function, void* data) {
  ++host_functions;
  function(data);
  return CUDA_SUCCESS;
}

Table device() {
  Table table{};
  queued.clear();
  able = 1;
  write_code = host_functions = 0;
  table.cuStreamWriteValue64_v2 = write_value;
  table.cuLaunchHostFunc = host_function;
  table.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = able;
    return CUDA_SUCCESS;
  };
  table.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
  table.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* address, void* memory, unsigned) {
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  };
  return table;
}

// The device comes to the next write of a stream.
void reach(CUstream stream) {
  const std::lock_guard lock(mutex);
  const Write next = queued.at(stream).front();
  queued.at(stream).pop_front();
  std::atomic_ref(*reinterpret_cast<uint64_t*>(next.address)).store(next.value);
}

CUstream stream(uintptr_t number) {
  return reinterpret_cast<CUstream>(number);
}

struct Called {
  std::mutex mutex;
  std::vector<int> order;
  std::vector<int> get() {
    const std::lock_guard lock(mutex);
    return order;
  }
};
struct Note {
  Called* called;
  int number;
  static void write(void* data) {
    const auto* note = static_cast<Note*>(data);
    const std::lock_guard lock(note->called->mutex);
    note->called->order.push_back(note->number);
  }
};

}  // namespace

TEST(functions_are_called_when_their_stream_has_come_to_them) {
  const Table table = device();
  std::string why;
  const auto words = StreamWords::make(table, 0, &why);
  CHECK(words != nullptr);
  Called called;
  Note notes[] = {{&called, 0}, {&called, 1}, {&called, 2}};
  pyft::server::DeviceThreads threads;
  const StreamWords::Watch watch(words.get(), threads);
  CHECK_EQ(words->signal(stream(1), Note::write, &notes[0]), 0);
  CHECK_EQ(words->signal(stream(1), Note::write, &notes[1]), 0);
  CHECK_EQ(words->signal(stream(2), Note::write, &notes[2]), 0);
  const uint64_t before = words->progress();
  reach(stream(2));  // other streams do not wait for the first
  CHECK(comes([&] { return called.get() == std::vector<int>{2}; }));
  reach(stream(1));
  CHECK(comes([&] { return called.get() == std::vector<int>({2, 0}); }));
  reach(stream(1));
  CHECK(comes([&] { return called.get() == std::vector<int>({2, 0, 1}); }));
  CHECK_EQ(words->progress(), before + 3);
  CHECK_EQ(host_functions, 0);
}

TEST(more_signals_than_words_become_host_functions) {
  const Table table = device();
  std::string why;
  const auto words = StreamWords::make(table, 0, &why);
  Called called;
  Note note{&called, 7};
  int signals = 0;
  for (; host_functions == 0; ++signals) CHECK_EQ(words->signal(stream(1), Note::write, &note), 0);
  CHECK(called.get() == std::vector<int>{7});
  pyft::server::DeviceThreads threads;
  const StreamWords::Watch watch(words.get(), threads);
  for (int i = 1; i < signals; ++i) reach(stream(1));
  CHECK(comes([&] { return called.get().size() == static_cast<size_t>(signals); }));
  CHECK_EQ(words->signal(stream(1), Note::write, &note), 0);  // words are free again
  CHECK_EQ(host_functions, 1);
}

TEST(what_the_device_refuses_is_told) {
  const Table table = device();
  std::string why;
  const auto words = StreamWords::make(table, 0, &why);
  Called called;
  Note note{&called, 1};
  write_code = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK_EQ(words->signal(stream(1), Note::write, &note), 700);
  able = 0;
  CHECK(StreamWords::make(table, 0, &why) == nullptr);
  CHECK_EQ(why, "streams of this device write no 64-bit words");
}

CHECK_MAIN
