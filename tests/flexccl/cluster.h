// All ranks of a communicator in this process, over a transport of choice.
#ifndef PYFT_TESTS_FLEXCCL_CLUSTER_H_
#define PYFT_TESTS_FLEXCCL_CLUSTER_H_

#include <functional>
#include <iostream>
#include <vector>

#include "check.h"
#include "flexccl.h"

struct Cluster {
  Cluster(int nranks, flexcclTransport_t transport, std::uint64_t timeout_ms = 20000,
          std::uint64_t repair_ms = 0, int reserved_slots = 0)
      : comms(static_cast<std::size_t>(nranks)) {
    flexcclSetTransport(transport);
    flexcclSetTimeout(timeout_ms);
    flexcclSetRepair(repair_ms);
    flexcclSetReservedSlots(reserved_slots);
    ncclUniqueId id;
    CHECK_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclGroupStart();
    for (int r = 0; r < nranks; ++r) CHECK_EQ(ncclCommInitRank(&at(r), nranks, id, r), ncclSuccess);
    if (ncclGroupEnd() != ncclSuccess) {
      std::cerr << ncclGetLastError(nullptr) << "\n";
      CHECK(!"init");
    }
  }
  ~Cluster() {
    for (ncclComm_t comm : comms)
      if (comm) ncclCommDestroy(comm);
  }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  int size() const { return static_cast<int>(comms.size()); }
  ncclComm_t& at(int rank) { return comms[static_cast<std::size_t>(rank)]; }

  // One call per rank, as one group; the results are there when it returns.
  void run(const std::function<ncclResult_t(int rank)>& call) {
    ncclGroupStart();
    for (int r = 0; r < size(); ++r) call(r);
    if (ncclGroupEnd() != ncclSuccess) {
      std::cerr << ncclGetLastError(nullptr) << "\n";
      CHECK(!"group");
    }
  }
  void synchronize() {
    for (ncclComm_t comm : comms)
      if (flexcclSynchronize(comm) != ncclSuccess) {
        std::cerr << ncclGetLastError(comm) << "\n";
        CHECK(!"synchronize");
      }
  }

  std::vector<ncclComm_t> comms;
};

#endif  // PYFT_TESTS_FLEXCCL_CLUSTER_H_
