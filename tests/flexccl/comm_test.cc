// Communicators: groups, split, shrink, streams, and ranks that are processes.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "cluster.h"
#include "comes.h"

namespace {

constexpr int kProcesses = 4;
constexpr std::size_t kCount = 300001;

// What the processes of one job share with the test.
struct JobBoard {
  std::atomic<bool> ready;
  ncclUniqueId id;
  std::atomic<int> joined;
  float sums[kProcesses][kCount];
  ncclResult_t code[kProcesses];
  char sentence[kProcesses][400];
};

std::vector<float> input(int rank) {
  std::vector<float> data(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    data[i] = 1.0f / static_cast<float>(i + 3 * static_cast<std::size_t>(rank) + 1);
  return data;
}

// Two all-reduces; before the second one `victim` kills itself.
int rank_main(JobBoard* board, int rank, flexcclTransport_t transport, int victim) {
  flexcclSetTransport(transport);
  flexcclSetTimeout(20000);
  if (rank == 0) {
    ncclGetUniqueId(&board->id);
    board->ready = true;
  }
  while (!board->ready) usleep(1000);
  ncclComm_t comm;
  if (ncclCommInitRank(&comm, kProcesses, board->id, rank) != ncclSuccess) return 1;
  std::vector<float> data = input(rank);
  ncclAllReduce(data.data(), board->sums[rank], kCount, ncclFloat32, ncclSum, comm, nullptr);
  if (flexcclSynchronize(comm) != ncclSuccess) return 2;
  // The root of the rendezvous and all peers are needed no longer once all are here.
  for (++board->joined; board->joined < kProcesses;) usleep(1000);
  if (rank == victim) kill(getpid(), SIGKILL);
  if (victim >= 0) {
    ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, nullptr);
    board->code[rank] = flexcclSynchronize(comm);
    std::strncpy(board->sentence[rank], ncclGetLastError(comm), sizeof board->sentence[rank] - 1);
  }
  return ncclCommDestroy(comm) == ncclSuccess ? 0 : 3;
}

struct Job {
  Job(flexcclTransport_t transport, int victim) {
    void* memory =
        mmap(nullptr, sizeof(JobBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board = static_cast<JobBoard*>(memory);
    for (int rank = 0; rank < kProcesses; ++rank) {
      pids[rank] = fork();
      if (pids[rank] == 0) _exit(rank_main(board, rank, transport, victim));
    }
    for (int rank = 0; rank < kProcesses; ++rank) waitpid(pids[rank], &status[rank], 0);
  }
  ~Job() { munmap(board, sizeof(JobBoard)); }
  JobBoard* board;
  pid_t pids[kProcesses];
  int status[kProcesses];
};

}  // namespace

// These two come first: a process that forks must not have threads yet.
TEST(processes) {
  std::vector<float> first;
  for (const auto transport : {flexcclShm, flexcclTcp, flexcclAuto}) {
    const Job job(transport, -1);
    if (first.empty()) first.assign(job.board->sums[0], job.board->sums[0] + kCount);
    for (int rank = 0; rank < kProcesses; ++rank) {
      CHECK_EQ(job.status[rank], 0);
      CHECK(std::memcmp(job.board->sums[rank], first.data(), sizeof job.board->sums[rank]) == 0);
    }
  }
  CHECK(first[0] > 1.0f);
}

TEST(killed_process_is_noticed_by_all) {
  for (const auto transport : {flexcclShm, flexcclTcp}) {
    const Job job(transport, 2);
    CHECK(WIFSIGNALED(job.status[2]));
    for (const int rank : {0, 1, 3}) {
      CHECK_EQ(job.status[rank], 0);
      CHECK_EQ(job.board->code[rank], ncclRemoteError);
      CHECK(std::strstr(job.board->sentence[rank], "nothing moved") == nullptr);
    }
  }
}

TEST(group_mixes_collectives_and_messages) {
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp}) {
    Cluster cluster(3, transport);
    int sum[3] = {1, 2, 3}, got[3][2] = {}, sent[3] = {10, 20, 30};
    ncclGroupStart();
    for (int r = 0; r < 3; ++r) {
      ncclComm_t comm = cluster.at(r);
      // Different orders on different ranks: within a group they do not matter.
      if (r == 1) ncclAllReduce(&sum[r], &sum[r], 1, ncclInt32, ncclSum, comm, nullptr);
      ncclSend(&sent[r], 1, ncclInt32, (r + 1) % 3, comm, nullptr);
      ncclSend(&sent[r], 1, ncclInt32, r, comm, nullptr);
      ncclRecv(&got[r][1], 1, ncclInt32, r, comm, nullptr);
      ncclRecv(&got[r][0], 1, ncclInt32, (r + 2) % 3, comm, nullptr);
      if (r != 1) ncclAllReduce(&sum[r], &sum[r], 1, ncclInt32, ncclSum, comm, nullptr);
    }
    CHECK_EQ(ncclGroupEnd(), ncclSuccess);
    cluster.synchronize();
    for (int r = 0; r < 3; ++r) {
      CHECK_EQ(sum[r], 6);
      CHECK_EQ(got[r][0], sent[(r + 2) % 3]);
      CHECK_EQ(got[r][1], sent[r]);
    }
  }
}

TEST(split_orders_by_key) {
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp}) {
    Cluster cluster(5, transport);
    ncclComm_t children[5];
    cluster.run([&](int r) {
      const int color = r == 4 ? NCCL_SPLIT_NOCOLOR : r % 2;
      return ncclCommSplit(cluster.at(r), color, -r, &children[r], nullptr);
    });
    CHECK(children[4] == nullptr);
    int gathered[4][2] = {}, mine[4] = {0, 1, 2, 3};
    ncclGroupStart();
    for (int r = 0; r < 4; ++r) {
      int rank = -1, count = 0;
      CHECK_EQ(ncclCommUserRank(children[r], &rank), ncclSuccess);
      CHECK_EQ(ncclCommCount(children[r], &count), ncclSuccess);
      CHECK_EQ(rank, r < 2 ? 1 : 0);  // the larger parent rank has the smaller key
      CHECK_EQ(count, 2);
      ncclAllGather(&mine[r], gathered[r], 1, ncclInt32, children[r], nullptr);
    }
    CHECK_EQ(ncclGroupEnd(), ncclSuccess);
    for (int r = 0; r < 4; ++r) {
      CHECK_EQ(flexcclSynchronize(children[r]), ncclSuccess);
      CHECK_EQ(gathered[r][0], 2 + r % 2);
      CHECK_EQ(gathered[r][1], r % 2);
      CHECK_EQ(ncclCommDestroy(children[r]), ncclSuccess);
    }
  }
}

TEST(shrink_leaves_out_a_dead_rank) {
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp}) {
    Cluster cluster(3, transport);
    CHECK_EQ(ncclCommAbort(std::exchange(cluster.at(1), nullptr)), ncclSuccess);
    ncclComm_t small[2];
    int excluded = 1, sum[2] = {5, 7};
    for (const int i : {0, 1})
      CHECK_EQ(
          ncclCommShrink(cluster.at(2 * i), &excluded, 1, &small[i], nullptr, NCCL_SHRINK_ABORT),
          ncclSuccess);
    for (const int i : {0, 1})
      CHECK_EQ(ncclAllReduce(&sum[i], &sum[i], 1, ncclInt32, ncclSum, small[i], nullptr),
               ncclSuccess);
    for (const int i : {0, 1}) {
      CHECK_EQ(flexcclSynchronize(small[i]), ncclSuccess);
      CHECK_EQ(sum[i], 12);
      CHECK_EQ(ncclCommDestroy(small[i]), ncclSuccess);
    }
  }
}

namespace {

// Two streams, each a thread that runs what it is given.
struct FakeStream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<void (*)(void*), void*>> queue;
  bool ending = false;
  std::atomic<int> ran = 0;
  std::thread thread{[this] { work(); }};

  void work() {
    for (std::unique_lock lock(mutex);;) {
      changed.wait(lock, [this] { return ending || !queue.empty(); });
      if (queue.empty()) return;
      const auto [run, arg] = queue.front();
      queue.pop_front();
      lock.unlock();
      run(arg);
      ++ran;
      lock.lock();
    }
  }
  ~FakeStream() {
    {
      const std::scoped_lock lock(mutex);
      ending = true;
    }
    changed.notify_all();
    thread.join();
  }
};

int enqueue_fake(int device, cudaStream_t stream, void (*run)(void*), void* arg) {
  if (!stream || device != 7) return 700;
  auto* fake = reinterpret_cast<FakeStream*>(stream);
  const std::scoped_lock lock(fake->mutex);
  fake->queue.emplace_back(run, arg);
  fake->changed.notify_all();
  return 0;
}

}  // namespace

TEST(operations_run_in_the_embedders_streams) {
  FakeStream streams[4];
  const flexcclStreamTable table{enqueue_fake, [] { return 7; }};
  flexcclSetStreamTable(&table);
  {
    Cluster cluster(2, flexcclLoopback);
    int value[2] = {1, 2};
    for (int round = 0; round < 6; ++round)  // alternating streams: still in the order of calls
      cluster.run([&](int r) {
        auto* stream = reinterpret_cast<cudaStream_t>(&streams[2 * (round % 2) + r]);
        return ncclAllReduce(&value[r], &value[r], 1, ncclInt32, ncclSum, cluster.at(r), stream);
      });
    cluster.synchronize();
    CHECK_EQ(value[0], 3 * 32);
    CHECK_EQ(value[1], 3 * 32);
    CHECK_EQ(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, cluster.at(0), nullptr),
             ncclUnhandledCudaError);
  }
  flexcclSetStreamTable(nullptr);
  for (FakeStream& stream : streams) {
    for (int i = 0; i < 300 && stream.ran < 3; ++i) usleep(10000);
    CHECK_EQ(stream.ran.load(), 3);
  }
}

// Two threads call at once. The stream takes no second operation before the first one, which would
// wait for it.
TEST(operations_come_into_a_stream_in_their_order) {
  static std::atomic<int> calls;
  calls = 0;
  const auto slow_at_first = [](int device, cudaStream_t stream, void (*run)(void*), void* arg) {
    if (++calls == 1) usleep(100000);  // the other one comes meanwhile
    return enqueue_fake(device, stream, run, arg);
  };
  const flexcclStreamTable table{slow_at_first, [] { return 7; }};
  flexcclSetStreamTable(&table);
  FakeStream stream;
  {
    Cluster cluster(1, flexcclLoopback);
    int values[2] = {1, 2};
    const auto call = [&](int* value) {
      CHECK_EQ(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, cluster.at(0),
                             reinterpret_cast<cudaStream_t>(&stream)),
               ncclSuccess);
    };
    std::thread first([&] { call(&values[0]); });
    CHECK(comes([] { return calls == 1; }));
    std::thread second([&] { call(&values[1]); });
    first.join(), second.join();
    for (int i = 0; i < 200 && stream.ran < 2; ++i) usleep(10000);
    CHECK_EQ(stream.ran.load(), 2);
    if (stream.ran < 2) CHECK_EQ(ncclCommAbort(std::exchange(cluster.at(0), nullptr)), ncclSuccess);
  }
  flexcclSetStreamTable(nullptr);
}

// What an operation leaves that another rank has not come to is no result. Its stream stands, as
// NCCL's do, and a thread that waits for it does not read that.
TEST(the_stream_of_a_failed_operation_stands) {
  const flexcclStreamTable table{enqueue_fake, [] { return 7; }};
  flexcclSetStreamTable(&table);
  for (const auto release : {ncclCommAbort, ncclCommDestroy}) {
    FakeStream streams[3];
    Cluster cluster(2, flexcclShm), other(2, flexcclShm);
    int value[2] = {1, 2};
    const auto sum = [&](ncclComm_t comm, int rank, FakeStream& stream) {
      return ncclAllReduce(&value[rank], &value[rank], 1, ncclInt32, ncclSum, comm,
                           reinterpret_cast<cudaStream_t>(&stream));
    };
    cluster.run([&](int rank) { return sum(cluster.at(rank), rank, streams[rank]); });
    for (const int rank : {0, 1}) CHECK(comes([&] { return streams[rank].ran == 1; }));
    // What comes after a failed one has no result either, and does not stand as long once more.
    constexpr int kBehind = 60;
    for (int i = 0; i <= kBehind; ++i) CHECK_EQ(sum(cluster.at(0), 0, streams[0]), ncclSuccess);
    CHECK_EQ(sum(other.at(0), 0, streams[0]), ncclSuccess);
    CHECK_EQ(sum(cluster.at(0), 0, streams[2]), ncclSuccess);
    CHECK_EQ(ncclCommAbort(std::exchange(cluster.at(1), nullptr)), ncclSuccess);
    CHECK_EQ(flexcclSynchronize(cluster.at(0)), ncclRemoteError);
    usleep(50000);  // for those that would go on
    CHECK_EQ(streams[0].ran.load(), 1);
    CHECK_EQ(streams[2].ran.load(), 0);
    // The stream has not come to this one, and does not before the first one ends.
    for (const int rank : {0, 1})
      CHECK_EQ(ncclCommAbort(std::exchange(other.at(rank), nullptr)), ncclSuccess);
    CHECK_EQ(release(std::exchange(cluster.at(0), nullptr)), ncclSuccess);
    CHECK(comes([&] { return streams[0].ran == 3 + kBehind && streams[2].ran == 1; }));
  }
  flexcclSetStreamTable(nullptr);
}

TEST(init_all_and_memory) {
  ncclComm_t comms[3];
  flexcclSetTransport(flexcclAuto);
  CHECK_EQ(ncclCommInitAll(comms, 3, nullptr), ncclSuccess);
  void* memory = nullptr;
  CHECK_EQ(ncclMemAlloc(&memory, 12), ncclSuccess);
  auto* values = static_cast<std::uint32_t*>(memory);
  ncclGroupStart();
  for (std::uint32_t r = 0; r < 3; ++r) {
    values[r] = 0x80000000u + r;
    ncclAllReduce(&values[r], &values[r], 1, ncclUint32, ncclMax, comms[r], nullptr);
  }
  CHECK_EQ(ncclGroupEnd(), ncclSuccess);
  for (ncclComm_t comm : comms) {
    CHECK_EQ(ncclCommFinalize(comm), ncclSuccess);
    CHECK_EQ(ncclBcast(values, 1, ncclInt32, 0, comm, nullptr), ncclInvalidUsage);
    CHECK_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  CHECK_EQ(values[0], 0x80000002u);
  CHECK_EQ(ncclMemFree(memory), ncclSuccess);
}

CHECK_MAIN
