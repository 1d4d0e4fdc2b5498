// What goes wrong ends with a sentence that names both sides, in bounded time; a rank that does not
// know the key of the job gets nowhere.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include "api/state.h"
#include "cluster.h"
#include "comes.h"
#include "transport/endpoint.h"

namespace {

constexpr flexcclTransport_t kAll[] = {flexcclLoopback, flexcclShm, flexcclTcp};

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Waits for all ranks; every one must have failed. Returns their sentences.
std::string all_fail(Cluster& cluster) {
  std::string sentences;
  for (ncclComm_t comm : cluster.comms) {
    CHECK(flexcclSynchronize(comm) != ncclSuccess);
    ncclResult_t code = ncclSuccess;
    CHECK_EQ(ncclCommGetAsyncError(comm, &code), ncclSuccess);
    CHECK(code != ncclSuccess);
    sentences += std::string(ncclGetLastError(comm)) + "\n";
  }
  return sentences;
}

bool has(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "[" << part << "] is not in: " << text;
  return false;
}

// Each rank its own buffer.
struct PerRank {
  float values[3][100] = {};
  float* of(int rank) { return values[rank]; }
};

}  // namespace

// Such as for the copy that a redo needs.
TEST(no_memory_is_an_error_of_the_communicator) {
  flexccl::Membership self{.comm = 77, .timeout_ms = 1000};
  self.members = std::vector{0};
  self.addresses = std::vector{flexccl::Endpoint::process().address()};
  const auto communicator = flexccl::Communicator::create(self, {}, 0);
  communicator->submit(nullptr, [](flexccl::Communicator&) { throw std::bad_alloc(); });
  communicator->synchronize();
  CHECK_EQ(communicator->async_error(), ncclSystemError);
}

TEST(count_mismatch_names_both_sides) {
  for (const auto transport : kAll) {
    Cluster cluster(3, transport);
    PerRank data;
    const double took = seconds_of([&] {
      cluster.run([&](int r) {
        return ncclAllReduce(data.of(r), data.of(r), r == 1 ? 12 : 10, ncclFloat32, ncclSum,
                             cluster.at(r), nullptr);
      });
      const std::string text = all_fail(cluster);
      CHECK(has(text, "rank [1] called ncclAllReduce(count [12], datatype [ncclFloat32]"));
      CHECK(has(text, "] called ncclAllReduce(count [10], datatype [ncclFloat32]"));
    });
    CHECK(took < 10);
  }
}

TEST(datatype_and_order_mismatch) {
  for (const auto transport : kAll) {
    PerRank data;
    Cluster types(2, transport);
    types.run([&](int r) {
      return ncclAllReduce(data.of(r), data.of(r), 8, r ? ncclInt32 : ncclFloat32, ncclSum,
                           types.at(r), nullptr);
    });
    CHECK(has(all_fail(types), "datatype [ncclInt32]"));
    Cluster order(2, transport);
    order.run([&](int r) {
      return r ? ncclBcast(data.of(r), 8, ncclFloat32, 0, order.at(r), nullptr)
               : ncclAllReduce(data.of(r), data.of(r), 8, ncclFloat32, ncclSum, order.at(r),
                               nullptr);
    });
    // Rank 1 never sends anything here: rank 0 must learn of its failure all the same.
    const double took = seconds_of([&] {
      CHECK(has(all_fail(order), "called ncclBroadcast(count [8], datatype [ncclFloat32], root"));
    });
    CHECK(took < 10);
  }
}

TEST(point_to_point_mismatch) {
  Cluster cluster(2, flexcclTcp);
  PerRank data;
  cluster.run([&](int r) {
    return r ? ncclRecv(data.of(r), 5, ncclFloat32, 0, cluster.at(r), nullptr)
             : ncclSend(data.of(r), 6, ncclFloat32, 1, cluster.at(r), nullptr);
  });
  CHECK(flexcclSynchronize(cluster.at(1)) == ncclInvalidUsage);
  CHECK(has(ncclGetLastError(cluster.at(1)), "rank [0] called ncclSend/Recv(count [6]"));
}

TEST(absent_rank_ends_at_the_deadline) {
  for (const auto transport : kAll) {
    Cluster cluster(2, transport, 300);
    float value = 1;
    const double took = seconds_of([&] {
      CHECK_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, cluster.at(0), nullptr),
               ncclSuccess);
      CHECK_EQ(flexcclSynchronize(cluster.at(0)), ncclRemoteError);
    });
    CHECK(has(ncclGetLastError(cluster.at(0)), "nothing moved for [300] ms; waits for rank [1]"));
    CHECK(took < 5);
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, cluster.at(0), nullptr) ==
          ncclRemoteError);  // the error stays
  }
}

TEST(destroyed_rank_is_noticed) {
  for (const auto transport : kAll) {
    Cluster cluster(3, transport);
    PerRank data;
    const auto call = [&](int r) {
      return ncclAllReduce(data.of(r), data.of(r), 100, ncclFloat32, ncclMax, cluster.at(r),
                           nullptr);
    };
    cluster.run(call);
    cluster.synchronize();
    CHECK_EQ(ncclCommAbort(std::exchange(cluster.comms.back(), nullptr)), ncclSuccess);
    cluster.comms.pop_back();
    cluster.run(call);
    CHECK(seconds_of([&] { CHECK(has(all_fail(cluster), "rank [2]")); }) < 10);
  }
}

TEST(connecting_to_an_ended_communicator_fails_at_once) {
  for (const auto transport : kAll) {
    Cluster cluster(2, transport);
    CHECK_EQ(ncclCommAbort(std::exchange(cluster.at(1), nullptr)), ncclSuccess);
    cluster.comms.pop_back();
    float value = 1;
    ncclSend(&value, 1, ncclFloat32, 1, cluster.at(0), nullptr);
    CHECK(seconds_of([&] { CHECK(has(all_fail(cluster), "rank [1]: ")); }) < 10);
  }
}

TEST(abort_ends_a_running_operation) {
  Cluster cluster(2, flexcclShm);
  float value = 1;
  ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, cluster.at(0), nullptr);
  CHECK(seconds_of([&] { ncclCommAbort(std::exchange(cluster.at(0), nullptr)); }) < 5);
}

TEST(garbage_and_truncated_hellos_are_refused) {
  Cluster cluster(2, flexcclTcp);
  flexccl::Endpoint& endpoint = flexccl::Endpoint::process();
  const std::uint64_t before = endpoint.refused();
  for (const std::size_t bytes : {0, 1, 71, 72, 5000}) {
    const flexccl::Fd fd = flexccl::connect_tcp(endpoint.address().ipv4, endpoint.address().port,
                                                flexccl::in_ms(2000));
    const std::string noise(bytes, 'x');
    if (bytes) CHECK(send(fd.get(), noise.data(), bytes, MSG_NOSIGNAL) > 0);
    shutdown(fd.get(), SHUT_WR);
    char end[64];
    while (recv(fd.get(), end, sizeof end, 0) > 0) continue;  // ends: it hung up on us
  }
  CHECK(comes([&] { return endpoint.refused() == before + 5; }));
  std::vector<int> data(2, 1);
  cluster.run([&](int r) {
    auto* mine = &data[static_cast<std::size_t>(r)];
    return ncclAllReduce(mine, mine, 1, ncclInt32, ncclSum, cluster.at(r), nullptr);
  });
  cluster.synchronize();
  CHECK_EQ(data[0] + data[1], 4);
}

TEST(wrong_key_is_refused_and_garbage_frames_end_the_operation) {
  for (const auto transport : {flexcclShm, flexcclTcp}) {
    Cluster cluster(2, transport);
    const flexccl::Membership member = flexccl::live(cluster.at(0))->membership();
    flexccl::Endpoint& endpoint = flexccl::Endpoint::process();
    flexccl::LinkRequest request{{member.comm, 0, 0}, 1, transport, {}, flexccl::in_ms(2000)};
    const flexccl::Doorbell bell;
    try {
      endpoint.connect(member.addresses[0], request, bell)->wait(std::chrono::seconds(2));
      CHECK(!"a wrong key was accepted");
    } catch (const flexccl::Error& error) {
      CHECK(has(error.what(), "closed instead of sending its welcome"));
    }
    request.key = member.key;  // now an insider that speaks nonsense in the name of rank 1
    const auto link =
        endpoint.connect(member.addresses[0], request, bell)->wait(std::chrono::seconds(2));
    std::string noise(128, 'x');
    const iovec part{noise.data(), noise.size()};
    CHECK_EQ(link->write({&part, 1}), 128u);
    int value = 0;
    ncclRecv(&value, 1, ncclInt32, 1, cluster.at(0), nullptr);
    CHECK_EQ(flexcclSynchronize(cluster.at(0)), ncclRemoteError);
    CHECK(has(ncclGetLastError(cluster.at(0)), "rank [1]: it sent garbage instead of a frame"));
  }
}

// An insider of one communicator that wants a link into another one of the same processes, or an
// answer about it, and speaks nonsense in its own: that one's operation fails, the other's bits
// stay.
TEST(an_insider_of_one_communicator_has_no_say_in_another) {
  for (const auto transport : {flexcclShm, flexcclTcp}) {
    Cluster hostile(2, transport), other(3, transport);
    const flexccl::Membership member = flexccl::live(hostile.at(0))->membership();
    const flexccl::Membership victim = flexccl::live(other.at(0))->membership();
    flexccl::Endpoint& endpoint = flexccl::Endpoint::process();
    const flexccl::Doorbell bell;
    const std::uint64_t before = endpoint.refused();
    flexccl::LinkRequest request{
        {victim.comm, 0, 0}, 1, transport, member.key, flexccl::in_ms(2000)};
    try {
      endpoint.connect(victim.addresses[0], request, bell)->wait(std::chrono::seconds(2));
      CHECK(!"an insider of another communicator was accepted");
    } catch (const flexccl::Error& error) {
      CHECK(has(error.what(), "closed instead of sending its welcome"));
    }
    const flexccl::Fd socket = flexccl::connect_tcp(victim.addresses[0].ipv4,
                                                    victim.addresses[0].port, flexccl::in_ms(2000));
    const auto hello = flexccl::hello_for(socket.get(), request, flexccl::LinkKind::kControl);
    flexccl::send_all(socket.get(), &hello, sizeof hello);
    char end;
    CHECK(comes([&] { return recv(socket.get(), &end, 1, 0) == 0; }));  // and no answer
    CHECK_EQ(endpoint.refused(), before + 2);

    request.inbox.comm = member.comm;
    const auto link =
        endpoint.connect(member.addresses[0], request, bell)->wait(std::chrono::seconds(2));
    const std::string noise(256, 'x');
    const iovec part{const_cast<char*>(noise.data()), noise.size()};
    CHECK_EQ(link->write({&part, 1}), noise.size());
    int value = 0;
    ncclRecv(&value, 1, ncclInt32, 1, hostile.at(0), nullptr);
    PerRank data;
    for (int r = 0; r < 3; ++r)
      for (int i = 0; i < 100; ++i) data.of(r)[i] = 0.1f * static_cast<float>(i + r);
    other.run([&](int r) {
      return ncclAllReduce(data.of(r), data.of(r), 100, ncclFloat32, ncclSum, other.at(r), nullptr);
    });
    other.synchronize();
    CHECK_EQ(flexcclSynchronize(hostile.at(0)), ncclRemoteError);
    CHECK(std::memcmp(data.of(0), data.of(1), sizeof data.values[0]) == 0);
    CHECK(std::memcmp(data.of(0), data.of(2), sizeof data.values[0]) == 0);
    CHECK_EQ(data.of(0)[0], 0.1f * 0 + 0.1f * 1 + 0.1f * 2);
  }
}

TEST(job_token) {
  flexcclSetTransport(flexcclTcp);
  flexcclSetTimeout(3000);
  setenv("FLEXCCL_JOB_TOKEN", "right", 1);
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  CHECK_EQ(ncclGetUniqueId(&id), ncclSuccess);
  setenv("FLEXCCL_JOB_TOKEN", "wrong", 1);
  CHECK_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
  CHECK(has(ncclGetLastError(nullptr), "the key of rank [0] is not the key of the job"));
  CHECK(comm == nullptr);
  setenv("FLEXCCL_JOB_TOKEN", "right", 1);
  CHECK_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  unsetenv("FLEXCCL_JOB_TOKEN");
  CHECK_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(rendezvous_disagreements) {
  for (const auto transport : {flexcclLoopback, flexcclTcp}) {
    flexcclSetTransport(transport);
    flexcclSetTimeout(60'000);  // longer than a busy machine keeps a thread waiting
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclComm_t comms[3] = {}, other = nullptr;
    std::atomic<bool> begun{false};
    const auto joins = [&](int rank) {
      return std::thread([&, rank] {
        begun = true;
        CHECK_EQ(ncclCommInitRank(&comms[rank], 3, id, rank), ncclSuccess);
        CHECK_EQ(ncclCommDestroy(comms[rank]), ncclSuccess);
      });
    };
    std::thread first = joins(0);
    CHECK(comes([&] { return begun.load(); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(ncclCommInitRank(&other, 2, id, 1) != ncclSuccess);
    CHECK(has(ncclGetLastError(nullptr), "there are [2] ranks, an earlier one said [3]"));
    CHECK(ncclCommInitRank(&other, 3, id, 0) != ncclSuccess);
    CHECK(has(ncclGetLastError(nullptr), "two callers say they are rank [0]"));
    std::thread second = joins(1), third = joins(2);  // which all of that has not disturbed
    for (std::thread* one : {&first, &second, &third}) one->join();
  }
}

TEST(arguments) {
  Cluster cluster(2, flexcclLoopback);
  ncclComm_t comm = cluster.at(0);
  int value = 0;
  int* const none = nullptr;
  CHECK_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, nullptr, nullptr),
           ncclInvalidArgument);
  CHECK_EQ(ncclAllReduce(none, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidArgument);
  CHECK_EQ(ncclAllReduce(&value, &value, 1, ncclNumTypes, ncclSum, comm, nullptr),
           ncclInvalidArgument);
  CHECK_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclNumOps, comm, nullptr),
           ncclInvalidArgument);
  CHECK_EQ(ncclAllReduce(&value, &value, SIZE_MAX, ncclInt32, ncclSum, comm, nullptr),
           ncclInvalidArgument);
  CHECK_EQ(ncclBcast(&value, 1, ncclInt32, 2, comm, nullptr), ncclInvalidArgument);
  CHECK_EQ(ncclBcast(&value, 1, ncclInt32, -1, comm, nullptr), ncclInvalidArgument);
  CHECK_EQ(ncclSend(&value, 1, ncclInt32, 2, comm, nullptr), ncclInvalidArgument);
  CHECK_EQ(ncclAlltoAll(&value, &value, 1, ncclInt32, comm, nullptr), ncclInvalidArgument);
  CHECK_EQ(ncclGroupEnd(), ncclInvalidUsage);
  ncclGroupStart();
  CHECK_EQ(ncclSend(&value, 1, ncclInt32, 7, comm, nullptr), ncclInvalidArgument);
  CHECK_EQ(ncclGroupEnd(), ncclInvalidArgument);
  float half = 0.5f;
  ncclRedOp_t op;
  CHECK_EQ(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, comm),
           ncclSuccess);
  CHECK_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, op, comm, nullptr), ncclInvalidArgument);
  CHECK_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
  CHECK_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
  ncclUniqueId id{};
  CHECK_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
  CHECK_EQ(ncclCommFinalize(nullptr), ncclSuccess);
  CHECK_EQ(ncclCommAbort(nullptr), ncclSuccess);
  CHECK_EQ(ncclCommDestroy(nullptr), ncclSuccess);
}

CHECK_MAIN
