// Marks around the collectives of a vendor's library: over streams of this test's making, which do
// what they are told only as far as the test lets them.
#include "server/session/collective_marks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "api/mock_table.h"
#include "check.h"
#include "own_server.h"
#include "server/device.h"
#include "server/recovery/session_device.h"

using namespace pyft;  // NOLINT: a test

namespace {

// Whatever a stream stands in until finish(): a kernel, a collective, a graph. Or a word to write.
struct Work {
  char what;
  std::atomic<uint64_t>* word = nullptr;
  uint64_t number = 0;
};

struct Driver {
  std::map<CUstream, std::deque<Work>> queues;
  std::set<CUstream> capturing;
  int groups = 0;
  std::vector<CUstream> in_group;
  int write_code = 0;
  ncclResult_t nccl_code = ncclSuccess;
  uint64_t writes = 0, writes_captured = 0;
} driver;

// As far as it goes without an end to what it stands in.
void poll(CUstream stream) {
  std::deque<Work>& queue = driver.queues[stream];
  for (; !queue.empty() && queue.front().word; queue.pop_front())
    queue.front().word->store(queue.front().number);
}

void add(CUstream stream, Work work) {
  driver.queues[stream].push_back(work);
  poll(stream);
}

void finish(CUstream stream, char what) {
  std::deque<Work>& queue = driver.queues[stream];
  CHECK(!queue.empty() && queue.front().what == what);
  if (!queue.empty()) queue.pop_front();
  poll(stream);
}

std::string left_in(CUstream stream) {
  std::string all;
  for (const Work& work : driver.queues[stream]) all += work.what;
  return all;
}

CUresult write_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  if (driver.write_code) return static_cast<CUresult>(driver.write_code);
  ++driver.writes;
  driver.writes_captured += driver.capturing.contains(stream);
  add(stream, {'w', reinterpret_cast<std::atomic<uint64_t>*>(address), value});
  return CUDA_SUCCESS;
}

ncclResult_t collective(CUstream stream) {
  if (driver.nccl_code || driver.capturing.contains(stream)) return driver.nccl_code;
  if (driver.groups)
    driver.in_group.push_back(stream);
  else
    add(stream, {'c'});
  return ncclSuccess;
}

ncclResult_t end_group() {
  if (--driver.groups) return ncclSuccess;
  for (const CUstream stream : driver.in_group) add(stream, {'c'});
  driver.in_group.clear();
  return driver.nccl_code;
}

CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  if (!stream && !driver.capturing.empty()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = driver.capturing.contains(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                              : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
      *value = 1;
      return CUDA_SUCCESS;
    };
    t.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* address, void* memory, unsigned) {
      *address = reinterpret_cast<CUdeviceptr>(memory);
      return CUDA_SUCCESS;
    };
    t.cuStreamWriteValue64_v2 = write_value;
    t.cuStreamIsCapturing = is_capturing;
    t.cuStreamBeginCapture_v2 = [](CUstream stream, CUstreamCaptureMode) {
      driver.capturing.insert(stream);
      return CUDA_SUCCESS;
    };
    t.cuStreamEndCapture = [](CUstream stream, CUgraph* graph) {
      driver.capturing.erase(stream);
      *graph = reinterpret_cast<CUgraph>(0x6000);
      return CUDA_SUCCESS;
    };
    t.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph, unsigned long long) {
      *exec = reinterpret_cast<CUgraphExec>(0x7000);
      return CUDA_SUCCESS;
    };
    t.cuGraphLaunch = [](CUgraphExec, CUstream stream) {
      add(stream, {'g'});
      return CUDA_SUCCESS;
    };
    t.ncclGroupStart = [] { return ++driver.groups, ncclSuccess; };
    t.ncclGroupEnd = end_group;
    // The address of a communicator here is the number of its ranks.
    t.ncclCommCount = [](const ncclComm_t comm, int* count) {
      *count = static_cast<int>(reinterpret_cast<uintptr_t>(comm));
      return ncclSuccess;
    };
    t.ncclAllReduce = [](const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                         cudaStream_t stream) { return collective(stream); };
    t.ncclSend = [](const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t stream) {
      return collective(stream);
    };
    t.ncclRecv = [](void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t stream) {
      return collective(stream);
    };
    t.ncclGetLastError = [](ncclComm_t) { return "refused"; };
    return t;
  }();
  return made;
}

const backend::Backend& vendor() {
  static const backend::Backend made{backend::Kind::kVendor, table(), {}};
  return made;
}

CUstream stream(uintptr_t number) {
  return reinterpret_cast<CUstream>(number << 12);
}

std::unique_ptr<server::StreamWords> make_words() {
  driver = {};
  std::string why;
  return server::StreamWords::make(table(), 0, &why);
}

std::atomic<uint64_t>* mark_words() {
  std::string why;
  return server::writable_words(table(), 0, server::CollectiveMarks::kBytes, &why);
}

// A rank with communicators of 1, 2 and 3 ranks, and with streams of the same numbers.
struct Rank {
  Rank() {
    for (uint32_t number = 1; number <= 3; ++number) {
      server.session.table(HandleKind::kCommunicator)
          .bind(handle(HandleKind::kCommunicator, number), reinterpret_cast<void*>(number));
      server.session.table(HandleKind::kStream)
          .bind(handle(HandleKind::kStream, number), stream(number));
    }
    server.session.table(HandleKind::kGraphExec)
        .bind(handle(HandleKind::kGraphExec, 1), reinterpret_cast<void*>(0x7000));
    server.session.shares_communicator();
  }
  static Handle handle(HandleKind kind, uint32_t number, uint32_t generation = 1) {
    return Handle::make(kind, number, generation);
  }
  static Handle of_stream(uint32_t number) { return handle(HandleKind::kStream, number); }
  template <class Command>
  void put(Call call, uint32_t comm, Handle on) {
    Command c{};
    c.comm = handle(HandleKind::kCommunicator, comm).value;
    c.stream = on.value;
    CHECK(server.dispatch(call, c).ok());
  }
  void all_reduce(uint32_t comm, Handle on) {
    put<cmd::ncclAllReduce>(Call::ncclAllReduce, comm, on);
  }
  void all_reduce(uint32_t comm, uint32_t on) { all_reduce(comm, of_stream(on)); }
  void start_group() { CHECK(server.dispatch(Call::ncclGroupStart, cmd::ncclGroupStart{}).ok()); }
  void end_group() { CHECK(server.dispatch(Call::ncclGroupEnd, cmd::ncclGroupEnd{}).ok()); }
  void launch_graph(uint32_t on, uint32_t exec = 1) {
    const cmd::cudaGraphLaunch c{handle(HandleKind::kGraphExec, exec).value, of_stream(on).value};
    CHECK(server.dispatch(Call::cudaGraphLaunch, c).ok());
  }
  void begin_capture(uint32_t on) {
    const cmd::cudaStreamBeginCapture c{of_stream(on).value};
    CHECK(server.dispatch(Call::cudaStreamBeginCapture, c).ok());
  }
  void end_capture(uint32_t on, uint32_t graph = 1) {
    const cmd::cudaStreamEndCapture c{handle(HandleKind::kGraph, graph).value, of_stream(on).value};
    CHECK(server.dispatch(Call::cudaStreamEndCapture, c).ok());
  }
  void instantiate(uint32_t exec, uint32_t graph = 1) {
    const cmd::cudaGraphInstantiateWithFlags c{handle(HandleKind::kGraphExec, exec).value,
                                               handle(HandleKind::kGraph, graph).value, 0};
    CHECK(server.dispatch(Call::cudaGraphInstantiateWithFlags, c).ok());
  }
  // What the agent sees.
  uint32_t waiting() {
    server.session.show_activity();
    return server.channel->control().collectives_waiting.load();
  }
  uint64_t progress() {
    server.session.show_activity();
    return server.channel->control().device_progress.load();
  }

  std::unique_ptr<server::StreamWords> words = make_words();
  server::CollectiveMarks marks{table(), mark_words()};
  const std::unique_ptr<server::DeviceCalls> device =
      server::device_calls(vendor(), 0, nullptr, words.get(), &marks);
  OwnServer server{&table(), *device};
};

}  // namespace

TEST(a_stream_waits_from_when_it_enters_a_collective_until_it_leaves_it) {
  Rank rank;
  add(stream(1), {'k'});
  rank.all_reduce(2, 1);
  CHECK_EQ(left_in(stream(1)), "kwcw");
  CHECK_EQ(rank.waiting(), 0u);  // should the kernel hang it is found
  const uint64_t before = rank.progress();
  finish(stream(1), 'k');
  CHECK_EQ(rank.waiting(), 1u);
  CHECK_EQ(rank.progress(), before + 1);
  CHECK_EQ(rank.progress(), before + 1);  // nothing moves
  finish(stream(1), 'c');
  CHECK_EQ(rank.waiting(), 0u);
  CHECK_EQ(rank.progress(), before + 2);
}

TEST(collectives_of_several_communicators_follow_each_other_in_a_stream) {
  Rank rank;
  rank.all_reduce(2, 1);
  rank.all_reduce(3, 1);
  rank.put<cmd::ncclSend>(Call::ncclSend, 2, Rank::of_stream(2));
  rank.put<cmd::ncclRecv>(Call::ncclRecv, 3, Rank::of_stream(3));
  CHECK_EQ(rank.waiting(), 3u);
  finish(stream(1), 'c');
  CHECK_EQ(rank.waiting(), 3u);  // in the next one
  finish(stream(2), 'c');
  finish(stream(3), 'c');
  CHECK_EQ(rank.waiting(), 1u);
  finish(stream(1), 'c');
  CHECK_EQ(rank.waiting(), 0u);
}

TEST(a_communicator_of_one_rank_waits_for_nobody) {
  Rank rank;
  rank.all_reduce(1, 1);
  rank.start_group();
  rank.all_reduce(1, 2);
  rank.end_group();
  CHECK_EQ(left_in(stream(1)) + left_in(stream(2)), "cc");
  CHECK_EQ(rank.waiting(), 0u);
}

TEST(a_group_is_marked_where_it_ends_once_in_each_stream) {
  Rank rank;
  add(stream(2), {'k'});
  rank.start_group();
  rank.all_reduce(2, 1);
  rank.start_group();
  rank.all_reduce(3, 1);
  rank.all_reduce(2, 2);
  rank.end_group();
  CHECK_EQ(driver.writes, 0u);
  rank.end_group();
  CHECK_EQ(left_in(stream(1)), "ccw");
  CHECK_EQ(left_in(stream(2)), "kwcw");
  CHECK_EQ(rank.waiting(), 1u);
  finish(stream(1), 'c');
  CHECK_EQ(rank.waiting(), 1u);
  finish(stream(1), 'c');
  CHECK_EQ(rank.waiting(), 0u);
  finish(stream(2), 'k');
  CHECK_EQ(rank.waiting(), 1u);
  finish(stream(2), 'c');
  CHECK_EQ(rank.waiting(), 0u);
  const uint64_t before = driver.writes;
  rank.start_group();
  rank.all_reduce(2, 3);
  rank.end_group();
  CHECK_EQ(left_in(stream(3)), "cw");
  CHECK_EQ(driver.writes, before + 2);  // nothing in the streams of the group before
}

TEST(what_the_library_refuses_leaves_nobody_waiting) {
  Rank rank;
  driver.nccl_code = ncclInvalidUsage;
  rank.all_reduce(2, 1);
  rank.start_group();
  rank.all_reduce(2, 2);
  rank.end_group();
  CHECK_EQ(driver.writes, 4u);
  CHECK_EQ(rank.waiting(), 0u);
}

TEST(captures_have_no_marks_and_launches_of_what_they_captured_have) {
  Rank rank;
  rank.launch_graph(1);
  CHECK_EQ(driver.writes, 0u);  // no graph has a collective
  finish(stream(1), 'g');
  rank.begin_capture(1);
  rank.all_reduce(2, 1);
  rank.start_group();
  rank.all_reduce(2, 1);
  rank.all_reduce(3, 2);  // captures nothing
  rank.end_group();
  CHECK_EQ(driver.writes_captured, 0u);
  CHECK_EQ(rank.waiting(), 1u);
  driver.queues.clear();
  rank.end_capture(1);
  rank.launch_graph(3);
  CHECK_EQ(left_in(stream(3)), "gw");
  finish(stream(3), 'g');
  CHECK_EQ(driver.writes_captured, 0u);
}

// Counts what this rank has done with others, as a line has it.
struct Counts : checkpoint::CommunicatorRecovery, checkpoint::Snapshots {
  bool can_replace() const override { return false; }
  std::string rejoin() override { return {}; }
  void* made_before(uint64_t, uint64_t) override { return nullptr; }
  void made(void*, uint64_t, uint64_t, int, int) override {}
  void ended(uint64_t, uint64_t) override {}
  void let_go(uint64_t) override {}
  void collective(uint64_t handle) override { all += std::to_string(Handle{handle}.index()); }
  void message(uint64_t, int peer, bool sends) override {
    all += (sends ? "s" : "r") + std::to_string(peer);
  }
  void commit_output() override { all += '.'; }
  bool make_room() override { return false; }
  std::string take() { return std::exchange(all, {}); }
  std::string all;
};

// Where ranks go back together their cuts have to fit, which these numbers say.
TEST(what_a_graph_has_captured_counts_at_each_launch_of_it) {
  Rank rank;
  Counts counts;
  rank.server.session.recovery().communicators = &counts;
  rank.server.session.recovery().set_snapshots(&counts);
  rank.all_reduce(2, 1);
  CHECK_EQ(counts.take(), ".2");
  rank.begin_capture(1);
  rank.all_reduce(2, 1);
  rank.put<cmd::ncclSend>(Call::ncclSend, 3, Rank::of_stream(1));
  rank.all_reduce(3, 2);  // captures nothing
  rank.end_capture(1);
  CHECK_EQ(counts.take(), "...3");
  rank.instantiate(2);
  rank.launch_graph(2);  // another one
  CHECK_EQ(counts.take(), "");
  rank.launch_graph(2, 2);
  rank.launch_graph(3, 2);
  CHECK_EQ(counts.take(), ".2s0.2s0");
  // Within another graph.
  rank.begin_capture(3);
  rank.launch_graph(3, 2);
  rank.end_capture(3, 2);
  CHECK_EQ(counts.take(), ".");
  rank.instantiate(3, 2);
  rank.launch_graph(1, 3);
  CHECK_EQ(counts.take(), ".2s0");
}

TEST(where_a_capture_cannot_be_asked_for_the_rank_looks_as_if_it_waited) {
  Rank rank;
  rank.begin_capture(1);
  rank.all_reduce(2, Handle{});  // in the default stream
  CHECK_EQ(driver.writes, 0u);
  CHECK_EQ(rank.waiting(), 1u);
}

TEST(without_its_marks_a_rank_looks_as_if_it_waited) {
  Rank rank;
  driver.write_code = CUDA_ERROR_OUT_OF_MEMORY;
  rank.all_reduce(2, 1);
  CHECK_EQ(rank.waiting(), 1u);
  driver.write_code = 0;
  driver.queues.clear();
  rank.all_reduce(2, 2);
  finish(stream(2), 'c');
  CHECK_EQ(rank.waiting(), 1u);
}

TEST(memory_of_other_processes_may_be_waited_for) {
  Rank rank;
  CHECK_EQ(rank.waiting(), 0u);
  const CUipcEventHandle from{};
  ring::EntryHeader header{};
  header.call = static_cast<uint16_t>(Call::cudaIpcOpenEventHandle);
  header.reply_slot = ring::kNoSlot;
  const cmd::cudaIpcOpenEventHandle body{Rank::handle(HandleKind::kEvent, 1).value};
  (void)server::dispatch(rank.server.session, header, std::as_bytes(std::span(&body, 1)),
                         std::as_bytes(std::span(&from, 1)));
  CHECK_EQ(rank.waiting(), 1u);
}

TEST(a_destroyed_stream_waits_until_it_has_left_its_collective) {
  Rank rank;
  const auto destroy = [&](Handle handle) {
    const cmd::cudaStreamDestroy c{handle.value};
    CHECK(rank.server.dispatch(Call::cudaStreamDestroy, c).ok());
  };
  const auto again = [&](uint32_t generation) {  // at the same address
    const Handle handle = Rank::handle(HandleKind::kStream, 1, generation);
    rank.server.session.table(HandleKind::kStream).bind(handle, stream(1));
    return handle;
  };
  rank.all_reduce(2, 1);
  destroy(Rank::of_stream(1));
  std::deque<Work> before;
  std::swap(before, driver.queues[stream(1)]);
  const Handle second = again(2);
  rank.all_reduce(2, second);
  CHECK_EQ(rank.waiting(), 2u);
  finish(stream(1), 'c');
  CHECK_EQ(rank.waiting(), 1u);  // the destroyed one
  destroy(second);
  std::swap(before, driver.queues[stream(1)]);
  finish(stream(1), 'c');
  CHECK_EQ(rank.waiting(), 0u);
  // Places are used again, or there would be none left.
  for (uint32_t generation = 3; generation < 3 + server::CollectiveMarks::kStreams; ++generation) {
    const Handle one = again(generation);
    rank.all_reduce(2, one);
    finish(stream(1), 'c');
    destroy(one);
  }
  CHECK(rank.marks.sees());
  CHECK_EQ(rank.waiting(), 0u);
}

TEST(more_streams_than_there_are_places_for_look_as_if_they_waited) {
  Rank rank;
  for (uintptr_t number = 1; number <= server::CollectiveMarks::kStreams; ++number) {
    rank.marks.enter(stream(number));
    rank.marks.leave(stream(number));
  }
  CHECK_EQ(rank.waiting(), 0u);
  rank.marks.enter(stream(5000));
  CHECK_EQ(rank.waiting(), 1u);
  rank.marks.leave(stream(5000));
  CHECK_EQ(rank.waiting(), 1u);
}

// What a cut and a gate ask, to give a device that computes more time than one that waits.
TEST(a_device_waits_in_a_collective_or_for_the_program_and_not_while_it_computes) {
  Rank rank;
  const backend::Extras extras{};
  server::SessionState state(rank.server.session, extras);
  rank.all_reduce(2, 1);
  CHECK(state.waits());
  finish(stream(1), 'c');
  CHECK(!state.waits());
  add(stream(1), {'k'});
  rank.all_reduce(2, 1);
  CHECK(!state.waits());  // the kernel computes
  finish(stream(1), 'k');
  CHECK(state.waits());
  finish(stream(1), 'c');
  ring::ControlPage& page = rank.server.channel->control();
  page.callback_asked.store(1);
  CHECK(state.waits());
  page.callback_done.store(1);
  CHECK(!state.waits());
  rank.marks.lose_sight("the test says so");
  CHECK(state.waits());
}

CHECK_MAIN
