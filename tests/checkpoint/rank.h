// A rank in the two-phase commit of cuts, with the test as its agent and as the other ranks.
#ifndef PYFT_TESTS_CHECKPOINT_RANK_H_
#define PYFT_TESTS_CHECKPOINT_RANK_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "checkpoint/snapshot/participant.h"
#include "recovery/server.h"

namespace checkpoint_test {

using namespace recovery_test;  // NOLINT: a test

inline constexpr uint64_t kBlock = 640, kLong = 600'000'000'000;

// Communicators that note what they are told.
struct Communicators : checkpoint::CommunicatorState {
  bool acknowledged(uint64_t cut) override { return ++looks, asked = cut, has_all; }
  void published(uint64_t cut, uint64_t seq) override { last = {cut, seq}; }
  bool has_all = false;
  uint64_t looks = 0, asked = 0;
  std::pair<uint64_t, uint64_t> last;
};

// Client and agent, which may end.
struct Alive : ring::Liveness {
  ring::WaitStatus check() const override { return status; }
  ring::WaitStatus status = ring::WaitStatus::kOk;
};

struct Rank {
  explicit Rank(uint64_t hold_ns = kLong) : options(options_of(hold_ns)) {
    fake.calls.staged = [this](uint64_t name, uint64_t offset, uint64_t seq) {
      said.push_back({name, offset, seq});
    };
    fake.calls.prepared = [this](uint64_t name, uint64_t seq) { said.push_back({name, seq}); };
    fake.calls.request_decision = [this](uint64_t name) { said.push_back({name}); };
  }
  checkpoint::SnapshotOptions options_of(uint64_t hold_ns) {
    checkpoint::SnapshotOptions made;
    made.hold_ns = hold_ns;
    made.agreed = &agreed;
    made.aborted = &aborted;
    return made;
  }
  static std::unique_ptr<checkpoint::Store> open(const Object& object) {
    std::string error;
    auto store = object.open(&error);
    CHECK_EQ(error, "");
    return store;
  }
  void do_one(const checkpoint::CutAction& action, const std::string& why = {}) {
    participant.perform({action}, why);
  }
  // A cut is hashed, and some of it lies elsewhere.
  void hash(uint64_t number, bool full = false, uint64_t step = 0, uint64_t elsewhere = 0) {
    participant.begin({number, 10 * number, number, full}, full);
    store->add_stored(64, kBlock, {number, number}, store->reserve(kBlock));
    if (elsewhere) store->add_elsewhere(1 << 20, elsewhere, {1, 1}, 3);
    ring::Manifest manifest{};
    manifest.cut = number;
    manifest.seq = 10 * number;
    manifest.step = step;
    CHECK(store->write(manifest, {}));
    participant.perform(participant.states().hashed(true, rules));
  }
  // It is whole, and waits for other ranks.
  void wait(uint64_t number, bool full = false) {
    hash(number, full);
    participant.perform(participant.states().made(true, false));
    CHECK(participant.waits());
  }
  ring::ControlPage& page() const { return bench.channel->control(); }
  ring::StoreHeader& figures() const { return store->header(); }

  Bench bench;
  Alive alive;
  checkpoint::Recovery recovery{*bench.channel};
  std::unique_ptr<checkpoint::Store> store = open(bench.object);
  Fake fake{bench.memory.calls(true)};
  Communicators communicators;
  std::atomic<uint64_t> agreed{0}, aborted{0};
  checkpoint::SnapshotOptions options;
  checkpoint::CutRules rules{.compares = true, .coordinated = true};
  checkpoint::Log log{*bench.channel, alive, recovery};
  checkpoint::Coordination coordination{options, store->header()};
  checkpoint::CommitBackoff backoff{options.hold_ns, 0};
  std::optional<checkpoint::PreImages> pre_images;
  checkpoint::CutSchedule schedule{log, *store, fake, communicators, coordination, options};
  checkpoint::Participant participant{log,           *store,       fake,
                                      communicators, coordination, {schedule, backoff, pre_images}};
  std::vector<std::vector<uint64_t>> said;  // to the agent
};

}  // namespace checkpoint_test

#endif  // PYFT_TESTS_CHECKPOINT_RANK_H_
