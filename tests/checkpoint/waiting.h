// A rank that waits for decisions about cuts, of which the test says when something happens.
#ifndef PYFT_TESTS_CHECKPOINT_WAITING_H_
#define PYFT_TESTS_CHECKPOINT_WAITING_H_

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "check.h"
#include "checkpoint/rank.h"
#include "checkpoint/snapshot/commit_waits.h"

namespace checkpoint_test {

inline constexpr uint64_t kShort = 1'000'000, kSecond = 1'000'000'000;
inline constexpr uint64_t kLimit = 60'000'000'000;  // of output that is held

// A rank whose device looks for work at each turn of a loop that waits: then something happens.
struct Waiting : Rank {
  explicit Waiting(uint64_t hold_ns = kLong) : Rank(hold_ns) {
    options.answer_ns = 0;
    options.hold_limit_ns = kLimit;
    communicators.has_all = true;
    rules = {.compares = true};
    figures().compares = 1;
    fake.calls.work = [this] {
      ++turns;
      // Another thread that needs what is guarded gets it meanwhile.
      if (is_guarded) CHECK(mutex.try_lock()), mutex.unlock();
      if (turns == happens_at) happens();
      return false;
    };
  }
  // At this turn that happens.
  void at(uint64_t turn, std::function<void()> what) {
    happens_at = turn, happens = std::move(what);
  }
  void coordinate() {
    rules.coordinated = true;
    figures().compares = 2;
  }
  // Does that with the lock, which it has again at the end.
  template <class Act>
  auto guarded(Act act) {
    std::unique_lock lock(mutex);
    is_guarded = true;
    struct Ends {
      ~Ends() { CHECK(lock.owns_lock()), is_guarded = false; }
      std::unique_lock<std::mutex>& lock;
      bool& is_guarded;
    } const ends{lock, is_guarded};
    return act(&lock);
  }
  void await_decision() {
    guarded([&](auto* busy) { waits.await_decision(busy); });
  }
  bool await_line() {
    return guarded([&](auto* busy) { return waits.await_line(busy); });
  }
  void make_way() {
    guarded([&](auto* busy) { waits.make_way(busy); });
  }
  bool admit(uint64_t number, bool forced) {
    ring::CutMark cut{};
    cut.number = cut.step = static_cast<uint32_t>(number);
    cut.forced = forced;
    return waits.admit(cut);
  }
  uint64_t committed() const { return store->committed().manifest.cut; }
  bool has_asked() const { return !said.empty() && said.back().size() == 1; }

  pyft::checkpoint::CommitWaits waits{log,     *store,      fake,   coordination,
                                      options, participant, backoff};
  std::mutex mutex;
  bool is_guarded = false;
  uint64_t turns = 0, happens_at = 0;
  std::function<void()> happens;
};

}  // namespace checkpoint_test

#endif  // PYFT_TESTS_CHECKPOINT_WAITING_H_
