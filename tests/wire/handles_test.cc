// Numbers of objects: used again with another generation, so that a program may make and end as
// many as it likes, and an error for the program when too many live.
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api/mock_table.h"
#include "check.h"
#include "client/graph/graph.h"
#include "client/process/handles.h"
#include "one_process.h"

namespace {

using namespace pyft;  // NOLINT: a test

// The objects behind are never looked at.
CUstream last_stream = reinterpret_cast<CUstream>(0x3000);

backend::Table& table() {
  static backend::Table mocked = [] {
    backend::Table t = backend::mock_table();
    t.cuStreamEndCapture = [](CUstream, CUgraph* graph) {
      *graph = reinterpret_cast<CUgraph>(0x1000);
      return CUDA_SUCCESS;
    };
    t.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph, unsigned long long) {
      *exec = reinterpret_cast<CUgraphExec>(0x2000);
      return CUDA_SUCCESS;
    };
    t.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      last_stream = reinterpret_cast<CUstream>(reinterpret_cast<uint64_t>(last_stream) + 16);
      *stream = last_stream;
      return CUDA_SUCCESS;
    };
    t.cuEventCreate = [](CUevent* event, unsigned) {
      *event = reinterpret_cast<CUevent>(0x4000);
      return CUDA_SUCCESS;
    };
    return t;
  }();
  return mocked;
}

Handle handle_of(const void* object) {
  return {reinterpret_cast<uint64_t>(object)};
}

TEST(a_program_may_make_a_graph_in_each_step) {
  OneProcess& process = *new OneProcess(&table());  // its thread stays
  cudaStream_t stream = nullptr;
  CHECK_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  std::set<uint64_t> seen;
  uint32_t most = 0;
  constexpr int kSteps = 66'000;  // more than a table had room for
  for (int step = 0; step < kSteps; ++step) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CHECK_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    CHECK_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    const bool made = cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess;
    CHECK(made);
    if (!made) break;
    CHECK(seen.insert(handle_of(graph).value).second);
    CHECK(seen.insert(handle_of(exec).value).second);
    most = std::max({most, handle_of(graph).index(), handle_of(exec).index()});
    // Others live on.
    CHECK_EQ(client::device_of_graph(graph, HandleKind::kGraph), process.device);
    CHECK_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
    CHECK_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  }
  process.device->writer().wait_consumed_all();
  CHECK(most <= 2);
  CHECK_EQ(seen.size(), size_t{2 * kSteps});
}

TEST(too_many_that_live_are_an_error_of_the_program) {
  constexpr HandleKind kKind = HandleKind::kMemPool;  // nothing else makes any
  std::vector<uint64_t> live;
  while (const uint64_t handle = client::mint_handle(kKind)) live.push_back(handle);
  CHECK_EQ(live.size(), size_t{kMaxObjects - 1});
  CHECK_EQ(client::mint_handle(kKind), uint64_t{0});
  client::end_handle(live[77]);
  const uint64_t next = client::mint_handle(kKind);
  CHECK_EQ(Handle{next}.index(), Handle{live[77]}.index());
  CHECK(next != live[77]);
  CHECK_EQ(client::last_handle(kKind, Handle{next}.index()), next);
  CHECK_EQ(client::mint_handle(kKind), uint64_t{0});
}

// A value names one object for ever.
TEST(a_number_whose_generations_are_used_up_is_left) {
  constexpr HandleKind kKind = HandleKind::kContext;  // nothing mints any
  uint64_t handle = client::mint_handle(kKind);
  const uint32_t index = Handle{handle}.index();
  for (uint32_t i = 1; i < kMaxGeneration; ++i) {
    client::end_handle(handle);
    handle = client::mint_handle(kKind);
  }
  CHECK_EQ(Handle{handle}.index(), index);
  CHECK_EQ(Handle{handle}.generation(), kMaxGeneration);
  client::end_handle(handle);
  CHECK(Handle{client::mint_handle(kKind)}.index() != index);
}

TEST(a_server_knows_as_many_as_a_client_makes) {
  server::HandleTable objects;
  int object = 0;
  CHECK(objects.bind(Handle::make(HandleKind::kGraph, kMaxObjects - 1, 1), &object));
  CHECK(!objects.bind(Handle::make(HandleKind::kGraph, kMaxObjects, 1), &object));
  for (const HandleKind kind :
       {HandleKind::kStream, HandleKind::kEvent, HandleKind::kCommunicator}) {
    CHECK(objects.bind(Handle::make(kind, ring::kCompletionWords - 1, 1), &object));
    CHECK(!objects.bind(Handle::make(kind, ring::kCompletionWords, 1), &object));
    CHECK(objects.unbind(Handle::make(kind, ring::kCompletionWords - 1, 1)) == &object);
  }
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  CHECK_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  return stream;
}

// A stream that was destroyed while its work, up to an event, is held.
struct EndedStream {
  EndedStream() {
    CHECK_EQ(cudaEventCreate(&event), cudaSuccess);
    process.calls();
    process.counted.hold(last_stream);
    CHECK_EQ(cudaEventRecord(event, stream), cudaSuccess);
    CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  OneProcess& process = *new OneProcess(&table());
  const cudaStream_t stream = new_stream();
  cudaEvent_t event = nullptr;
};

TEST(the_word_of_a_stream_is_not_used_again_before_its_work_is_done) {
  const EndedStream ended;
  OneProcess& process = ended.process;
  const cudaStream_t next = new_stream();
  CHECK(handle_of(next).index() != handle_of(ended.stream).index());
  process.counted.release();
  process.calls();
  CHECK_EQ(cudaStreamDestroy(next), cudaSuccess);
  const std::set<uint32_t> again{handle_of(new_stream()).index(), handle_of(new_stream()).index()};
  CHECK(again.contains(handle_of(ended.stream).index()));
  CHECK(again.contains(handle_of(next).index()));
  process.calls();
}

TEST(what_a_stream_was_given_is_waited_for_behind_its_end) {
  const EndedStream ended;
  OneProcess& process = ended.process;
  const cudaStream_t next = new_stream();
  cudaEvent_t other = nullptr;
  CHECK_EQ(cudaEventCreate(&other), cudaSuccess);
  CHECK_EQ(cudaEventRecord(other, next), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(next), cudaSuccess);
  CHECK_EQ(cudaEventQuery(ended.event), cudaErrorNotReady);
  std::atomic<bool> returned{false};
  std::thread waits([&] {
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
    returned = true;
  });
  process.calls();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!returned.load());
  process.counted.release();
  waits.join();
  CHECK_EQ(cudaEventQuery(ended.event), cudaSuccess);
}

// A destructor of a library may copy at a thread's end, when that has no stream of its own any
// more.
struct AtTheEnd {
  ~AtTheEnd() { code = cudaEventRecord(event, cudaStreamPerThread); }
  inline static cudaEvent_t event = nullptr;
  inline static cudaError_t code = cudaErrorUnknown;
};

TEST(no_call_is_lost_at_the_end_of_a_thread) {
  OneProcess& process = *new OneProcess(&table());
  CHECK_EQ(cudaEventCreate(&AtTheEnd::event), cudaSuccess);
  process.calls();
  std::thread([] {
    thread_local const AtTheEnd last;
    CHECK_EQ(cudaStreamQuery(cudaStreamPerThread), cudaSuccess);
    static_cast<void>(last);
  }).join();
  CHECK_EQ(AtTheEnd::code, cudaSuccess);
  const std::string calls = process.calls();
  CHECK(calls.find("cuStreamDestroy_v2") != calls.npos);
  CHECK(calls.find("cuEventRecord") != calls.npos);
}

}  // namespace

CHECK_MAIN
