// A server whose snapshots depend on other ranks', with the test as its agent.
#ifndef PYFT_TESTS_RECOVERY_SHARING_SERVER_H_
#define PYFT_TESTS_RECOVERY_SHARING_SERVER_H_

#include <atomic>
#include <cstring>
#include <functional>
#include <vector>

#include "recovery/server.h"

namespace recovery_test {

inline ring::StoreHeader& header_of(const Bench& bench) {
  return *reinterpret_cast<ring::StoreHeader*>(bench.object.at);
}

// A server whose cuts wait for the agent, which the test is.
struct SharingServer : HeldServer {
  explicit SharingServer(Bench& bench, uint64_t hold_ns = 1'000'000,
                         uint64_t drain_timeout_ns = 50'000'000)
      : HeldServer(bench) {
    calls.prepared = [this](uint64_t step, uint64_t) {
      prepared.push_back(step);
      if (on_held) on_held();
    };
    calls.request_decision = [this](uint64_t step) {
      decision_requests.push_back(step);
      if (on_decision_request) on_decision_request();
    };
    checkpoint::SnapshotOptions options;
    options.drain_timeout_ns = drain_timeout_ns;
    options.every = 1;
    options.late = checkpoint::Late::kNever;
    options.hold_ns = hold_ns;
    options.answer_ns = 20'000'000;
    options.agreed = &agreed;
    options.committed = &committed;
    options.aborted = &aborted;
    restart(options);
    store->header().shares = 1;
  }
  void commit(uint64_t step) {
    agreed = committed = step;
    snapshotter->poll();
  }
  // Writes down what the agent has planned.
  void leave(const std::vector<ring::SharedBlock>& rows, uint64_t version = 2) {
    ring::StoreHeader& header = store->header();
    std::memcpy(reinterpret_cast<std::byte*>(&header) + header.shares_offset, rows.data(),
                rows.size() * sizeof rows[0]);
    header.shares_rows = rows.size();
    header.shares_version = version;
  }
  std::atomic<uint64_t> committed{0}, aborted{0};
  std::vector<uint64_t> prepared, decision_requests;
  std::function<void()> on_decision_request, on_held;
};

}  // namespace recovery_test

#endif  // PYFT_TESTS_RECOVERY_SHARING_SERVER_H_
