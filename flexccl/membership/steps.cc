#include "membership/steps.h"

#include <algorithm>
#include <utility>

namespace flexccl {

Steps::Steps(std::uint32_t epoch, std::shared_ptr<MembershipLog> log)
    : log_(std::move(log)), look_at_(log_.get()), newest_(epoch) {}

std::shared_ptr<MembershipLog> Steps::log() const {
  const std::scoped_lock lock(mutex_);
  return log_;
}

void Steps::set_log(std::shared_ptr<MembershipLog> log) {
  const std::scoped_lock lock(mutex_);
  if (log_ || !log) return;
  log_ = std::move(log);
  look_at_.store(log_.get(), std::memory_order_release);
}

std::uint32_t Steps::newest() const {
  const MembershipLog* log = look_at_.load(std::memory_order_acquire);
  return std::max(newest_.load(std::memory_order_acquire), log ? log->epoch() : 0);
}

// Takes over what has appeared in the membership log.
void Steps::look() const {
  if (!log_ || log_->epoch() <= newest_.load(std::memory_order_relaxed)) return;
  const auto steps = log_->steps_after(newest_.load(std::memory_order_relaxed));
  for (const Change& step : steps) known_.try_emplace(step.epoch, step);
  if (steps.empty()) return;
  newest_.store(known_.rbegin()->first, std::memory_order_release);
  changed_.notify_all();
}

bool Steps::learn(std::span<const Change> steps) {
  const std::scoped_lock lock(mutex_);
  look();
  bool fits = true;
  for (const Change& step : steps)  // what follows another step than the known one is not for here
    fits = fits && same_step(known_.try_emplace(step.epoch, step).first->second, step);
  fits = pin_up() && fits;
  // A new rank may have missed some; what lies before the first known step is of no use to any
  // rank.
  while (known_.size() > Info::kMaxChanges) known_.erase(known_.begin());
  if (!known_.empty())
    newest_.store(std::max(newest_.load(), known_.rbegin()->first), std::memory_order_release);
  changed_.notify_all();
  return fits;
}

// What was heard by message goes to the others of this host. False: another rank was first.
bool Steps::pin_up() {
  if (!log_ || known_.empty()) return true;
  if (!follow_page()) return false;
  std::vector<Change> steps;
  for (const auto& [epoch, step] : known_) steps.push_back(step);
  log_->publish(steps);
  return follow_page();
}

// What stands there is decided. False: something else was taken for it here.
bool Steps::follow_page() {
  bool fits = true;
  for (const Change& step : log_->steps_after(known_.begin()->first - 1)) {
    const auto [known, is_new] = known_.try_emplace(step.epoch, step);
    if (is_new || same_step(known->second, step)) continue;
    fits = false;
    known_.erase(known, known_.end());
    known_.emplace(step.epoch, step);
  }
  return fits;
}

void Steps::agree(const Change& step) {
  const std::scoped_lock lock(mutex_);
  agreed_ = step;
  agreed_epoch_.store(step.epoch, std::memory_order_release);
  changed_.notify_all();
}

std::vector<Change> Steps::decided(std::uint32_t epoch) const {
  if (newest() <= epoch) return {};
  const std::scoped_lock lock(mutex_);
  look();
  std::vector<Change> steps;
  for (auto at = known_.find(epoch + 1); at != known_.end() && at->first == epoch + 1;
       ++at, ++epoch)
    steps.push_back(at->second);
  return steps;
}

std::vector<Change> Steps::ready(std::uint32_t epoch) const {
  std::vector<Change> steps = decided(epoch);
  const std::uint32_t agreed = agreed_epoch_.load(std::memory_order_acquire);
  const auto waits = std::find_if(steps.begin(), steps.end(), [&](const Change& step) {
    return step.repair != Repair::kReplace && step.epoch > agreed;
  });
  steps.erase(waits, steps.end());
  return steps;
}

std::vector<Change> Steps::expected(std::uint32_t epoch) const {
  std::vector<Change> steps = decided(epoch);
  if (!in_doubt(epoch)) return steps;
  const std::scoped_lock lock(mutex_);
  if (agreed_ && agreed_->epoch == epoch + steps.size() + 1) steps.push_back(*agreed_);
  return steps;
}

bool Steps::in_doubt(std::uint32_t epoch) const {
  const std::uint32_t agreed = agreed_epoch_.load(std::memory_order_acquire);
  return agreed > epoch && agreed > newest();
}

std::optional<Change> Steps::decided_at(std::uint32_t epoch) const {
  look();
  const auto found = known_.find(epoch);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

Steps::Vote Steps::count_vote(const Change& step) const {
  if (const auto decided = decided_at(step.epoch))
    return same_step(*decided, step) ? Vote::kDecided : Vote::kOther;
  if (newest() >= step.epoch) return Vote::kOther;  // long ago
  return agreed_ && same_step(*agreed_, step) ? Vote::kAgreed : Vote::kOpen;
}

Steps::Vote Steps::vote(const Change& step) const {
  const std::scoped_lock lock(mutex_);
  return count_vote(step);
}

Steps::Vote Steps::wait_for_vote(const Change& step, Deadline limit) const {
  std::unique_lock lock(mutex_);
  Vote vote;
  changed_.wait_until(lock, limit, [&] { return (vote = count_vote(step)) != Vote::kOpen; });
  return vote;
}

bool Steps::wait_for_voter(const Change& step, std::chrono::microseconds longest) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, longest, [&] { return voter_ && same_step(*voter_, step); });
}

void Steps::note_voter(const Change& step) {
  const std::scoped_lock lock(mutex_);
  voter_ = step;
  changed_.notify_all();
}

}  // namespace flexccl
