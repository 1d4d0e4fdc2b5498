// What a snapshot has cost the program, by what has happened at it.
#include "checkpoint/snapshot/cut_cost.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "check.h"
#include "ring/wait.h"

// In front of those of the C library, for all of this process: time passes as it is looked at and
// in sleeps, of which this thread uses none.
namespace {
uint64_t time_ns = 1'000'000'000, slept_ns = 0;
}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  time_ns += 100;
  const uint64_t ns = clock == CLOCK_THREAD_CPUTIME_ID ? time_ns - slept_ns : time_ns;
  now->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  now->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}

extern "C" int usleep(useconds_t microseconds) {
  time_ns += uint64_t{microseconds} * 1000;
  slept_ns += uint64_t{microseconds} * 1000;
  return 0;
}

namespace {

using namespace pyft;  // NOLINT: a test
using checkpoint::CutCost;

constexpr uint64_t kNever = ~uint64_t{0};
constexpr uint64_t kWorkNs = 3'000'000;

ring::CutMark with_scope(uint16_t scope_us) {
  ring::CutMark cut{};
  cut.scope_us = scope_us;
  return cut;
}

ring::EntryHeader appended(uint64_t ns) {
  ring::EntryHeader header{};
  header.time_ns = ns;
  return header;
}

// From how long to how long something has taken.
struct Taken {
  uint64_t least, most;
  bool has(uint64_t ns) const { return least <= ns && ns <= most; }
};

// The work in the server's thread: it computes, or sleeps.
Taken work(CutCost& cost, bool sleeps, bool by_processor) {
  const uint64_t before = ring::now_ns();
  cost.begin();
  CHECK(!cost.has_ended());
  const uint64_t begun = ring::now_ns();
  if (sleeps) usleep(kWorkNs / 1000);
  while (ring::now_ns() < begun + kWorkNs) continue;
  const uint64_t ends = ring::now_ns();
  cost.end(by_processor);
  CHECK(cost.has_ended());
  return {ends - begun, ring::now_ns() - before};
}

using Figures = std::unique_ptr<ring::StoreHeader>;

TEST(waiting_for_the_streams_and_the_work_are_the_cut) {
  CutCost cost;
  cost.quiesced(900, 7'000'000'000, with_scope(0), appended(0));
  CHECK_EQ(cost.came_ns(), 900u);
  const Taken taken = work(cost, false, false);
  CHECK(taken.has(cost.longest_ns()));
  const Figures figures = std::make_unique<ring::StoreHeader>();
  CHECK(taken.has(cost.add_to(*figures, 0)));
  CHECK_EQ(figures->drain_ns.load(), 7'000'000'000u);
  CHECK(taken.has(figures->cut_ns - 7'000'000'000));
  CHECK(taken.has(figures->kept_ns));
  cost.add_to(*figures, 10 * kWorkNs);  // they are sums
  CHECK_EQ(figures->drain_ns.load(), 14'000'000'000u);
  CHECK(figures->kept_ns >= 2 * taken.least + 10 * kWorkNs);
  CHECK(figures->kept_ns <= 2 * taken.most + 10 * kWorkNs);
}

TEST(what_the_processor_does_costs_what_it_takes_of_it) {
  const Figures figures = std::make_unique<ring::StoreHeader>();
  CutCost slept;
  const Taken asleep = work(slept, true, true);
  CHECK(slept.add_to(*figures, 0) <= asleep.most - kWorkNs);
  CutCost computed;
  const Taken taken = work(computed, false, true);
  const uint64_t used = computed.add_to(*figures, 0);
  CHECK(used > 0 && used <= taken.most);
  computed.next_entry(0);  // no more than that was kept waiting
  const uint64_t kept = computed.add_to(*figures, 0);
  CHECK(kept > 0 && kept <= used);
}

TEST(only_what_has_waited_was_kept_waiting) {
  const Figures figures = std::make_unique<ring::StoreHeader>();
  CutCost late, early, both;
  work(late, false, false);
  CHECK(!late.is_accounted());
  late.next_entry(kNever);
  CHECK(late.is_accounted());
  CHECK_EQ(late.add_to(*figures, 0), 0u);
  const Taken taken = work(early, false, false);
  early.next_entry(1);  // before the snapshot
  CHECK(taken.has(early.add_to(*figures, 0)));
  const uint64_t before = ring::now_ns();
  work(both, false, false);
  both.next_entry(before + kWorkNs / 2);  // in the middle
  both.next_entry(1);                     // the first one counts
  CHECK(both.add_to(*figures, 0) > 0);
  CHECK(both.add_to(*figures, 0) <= ring::now_ns() - before - kWorkNs / 2);
}

TEST(a_client_that_finds_out_what_is_live_keeps_its_server_waiting) {
  const Figures figures = std::make_unique<ring::StoreHeader>();
  const auto kept = [&](uint64_t appended_ns) {
    CutCost cost;
    cost.quiesced(0, 0, with_scope(60'000), appended(appended_ns));
    work(cost, false, false);
    cost.next_entry(kNever);
    return cost.add_to(*figures, 0);
  };
  constexpr uint64_t kScopeNs = 60'000'000;
  const uint64_t now = ring::now_ns();
  CHECK_EQ(kept(now + 1'000'000'000'000), kScopeNs);
  CHECK_EQ(kept(now - kScopeNs), 0u);  // it was as far behind
  const uint64_t partly = kept(now - kScopeNs / 2);
  CHECK(partly <= kScopeNs / 2);
  CHECK(partly >= kScopeNs / 2 - std::min(kScopeNs / 2, ring::now_ns() - now));
}

TEST(copies_behind_the_program_are_part_of_the_snapshot) {
  CutCost cost;
  cost.leave({{0, 300, nullptr, {}}, {0, 20, nullptr, {}}});
  CHECK_EQ(cost.later_bytes(), 320u);
  const Taken taken = work(cost, false, false);
  cost.copied(1);
  CHECK(taken.has(cost.longest_ns()));
  cost.copied(7'000'000'000'000);
  CHECK_EQ(cost.longest_ns(), 7'000'000'000'000u);
}

}  // namespace

CHECK_MAIN
