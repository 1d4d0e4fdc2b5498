// Ranks as threads of this process that can be killed and replaced, and the operations that the
// repair tests disturb.
#ifndef PYFT_TESTS_FLEXCCL_CREW_H_
#define PYFT_TESTS_FLEXCCL_CREW_H_

#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "cluster.h"
#include "comes.h"
#include "flexccl.h"

inline void must(ncclResult_t code, const char* what) {
  if (code == ncclSuccess) return;
  std::cerr << what << ": " << ncclGetLastError(nullptr) << "\n";
  CHECK(!"a call that must succeed");
}

inline flexcclState_t state_of(ncclComm_t comm) {
  flexcclState_t state{};
  state.size = sizeof state;
  must(flexcclGetState(comm, &state), "flexcclGetState");
  return state;
}

// A communicator of ranks that wait for repairs, with spare slots.
struct Crew : Cluster {
  static constexpr std::uint64_t kRepairMs = 20000;

  Crew(int nranks, flexcclTransport_t transport, std::uint64_t repair_ms = kRepairMs)
      : Cluster(nranks, transport, 20000, repair_ms, 2) {}

  // Ends a rank as a process would end; returns how many operations it had completed.
  std::uint64_t kill(int slot) {
    const std::uint64_t done = state_of(at(slot)).operation;
    CHECK_EQ(ncclCommAbort(std::exchange(at(slot), nullptr)), ncclSuccess);
    return done;
  }
  bool all_done() const {
    for (ncclComm_t comm : comms)
      if (comm && state_of(comm).operation == 0) return false;
    return true;
  }
  int survivor() const {
    int best = -1;
    for (int slot = 0; slot < size(); ++slot)
      if (comms[static_cast<std::size_t>(slot)] &&
          (best < 0 || state_of(comms[static_cast<std::size_t>(slot)]).epoch >
                           state_of(comms[static_cast<std::size_t>(best)]).epoch))
        best = slot;
    return best;
  }
  // The steps apart, so that tests can fail between them.
  ncclComm_t recruit(int slot, flexcclInfo_t* info, std::int64_t replay_from = -1) {
    flexcclInfo_t exported;
    ncclComm_t fresh = nullptr;
    must(ncclCommExportInfo(at(survivor()), slot, &exported), "ncclCommExportInfo");
    must(ncclInitNewNode(&fresh, &exported, slot, info), "ncclInitNewNode");
    if (replay_from >= 0)
      must(flexcclReplay(fresh, nullptr, 0, static_cast<std::uint64_t>(replay_from)), "replay");
    return fresh;
  }
  void replace(int slot, std::int64_t replay_from = -1) {
    flexcclInfo_t info;
    ncclComm_t fresh = recruit(slot, &info, replay_from);
    for (int other = 0; other < size(); ++other)
      if (at(other)) must(ncclReplaceNode(at(other), slot, &info), "ncclReplaceNode");
    must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
    at(slot) = fresh;
  }
};

// One operation, with buffers for every rank.
struct Task {
  using Call = std::function<ncclResult_t(Task&, int rank, ncclComm_t comm)>;
  const char* name;
  int nranks;
  std::size_t in_count, out_count;
  bool in_place;
  Call call;
  std::vector<std::vector<float>> in = {}, out = {};

  // What a rank, or its replacement, has before the operation.
  void prepare(int rank) {
    in.resize(static_cast<std::size_t>(nranks));
    out.resize(static_cast<std::size_t>(nranks));
    std::vector<float> values(std::max(in_count, out_count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = 1.0f / static_cast<float>(3 * i + 7 * static_cast<std::size_t>(rank) + 1);
    auto& target = out[static_cast<std::size_t>(rank)];
    in[static_cast<std::size_t>(rank)] = values;
    target = in_place ? values : std::vector<float>(out_count, -1.0f);
  }
  float* input(int rank) {
    return in_place ? output(rank) : in[static_cast<std::size_t>(rank)].data();
  }
  float* output(int rank) { return out[static_cast<std::size_t>(rank)].data(); }
  ncclResult_t run(int rank, ncclComm_t comm) { return call(*this, rank, comm); }
  // The results of a run that nothing disturbs.
  std::vector<std::vector<float>> reference(flexcclTransport_t transport) {
    Cluster cluster(nranks, transport);
    for (int rank = 0; rank < nranks; ++rank) prepare(rank);
    cluster.run([&](int rank) { return run(rank, cluster.at(rank)); });
    cluster.synchronize();
    return out;
  }
};

inline bool same_bits(const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return a.size() == b.size();
}

#endif  // PYFT_TESTS_FLEXCCL_CREW_H_
