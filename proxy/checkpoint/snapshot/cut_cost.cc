#include "checkpoint/snapshot/cut_cost.h"

#include <time.h>

#include <algorithm>
#include <chrono>

#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

uint64_t thread_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  const auto all = std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  return static_cast<uint64_t>(all.count());
}

// The device stands still now. What the client did while the server was as far behind with its work
// has kept nothing waiting.
uint64_t exposed_scope_ns(const ring::CutMark& cut, const ring::EntryHeader& header) {
  const uint64_t now = ring::now_ns(), behind = now - std::min(now, header.time_ns);
  const uint64_t scope_ns = uint64_t{cut.scope_us} * 1000;
  return scope_ns - std::min(scope_ns, behind);
}

void add(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

void CutCost::quiesced(uint64_t came_ns, uint64_t drain_ns, const ring::CutMark& cut,
                       const ring::EntryHeader& header) {
  came_ns_ = came_ns;
  drain_ns_ = drain_ns;
  scope_ns_ = exposed_scope_ns(cut, header);
}

void CutCost::begin() {
  began_ns_ = ring::now_ns();
  used_ns_ = thread_ns();
}

void CutCost::end(bool by_processor) {
  ended_ns_ = ring::now_ns();
  used_ns_ = by_processor ? thread_ns() - used_ns_ : ended_ns_ - began_ns_;
}

void CutCost::leave(const std::vector<CopyJob>& later) {
  for (const CopyJob& job : later) later_bytes_ += job.bytes;
}

// Entries wait from when the first of them was appended: no sooner than the snapshot begins. While
// this thread has no processor another process gets on with its work: on a machine that is too
// small for what it does a snapshot costs its processor time and nothing more.
void CutCost::next_entry(uint64_t appended_ns) {
  if (!kept_ns_)
    kept_ns_ = std::min(ended_ns_ - std::clamp(appended_ns, began_ns_, ended_ns_), used_ns_);
}

uint64_t CutCost::longest_ns() const {
  return std::max(ended_ns_ - began_ns_, later_ns_);
}

uint64_t CutCost::add_to(ring::StoreHeader& figures, uint64_t waited_ns) const {
  const uint64_t kept = kept_ns_.value_or(used_ns_) + scope_ns_ + waited_ns;
  add(figures.drain_ns, drain_ns_);
  add(figures.cut_ns, drain_ns_ + ended_ns_ - began_ns_);
  add(figures.kept_ns, kept);
  return kept;
}

}  // namespace pyft::checkpoint
