#include "runner/query_server.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/waiting.h"
#include "runner/operation_runner.h"
#include "transport/join.h"

namespace flexccl {
namespace {

constexpr std::uint64_t kTellMs = 3000;
constexpr std::chrono::milliseconds kLook(20);

// Those of this host that cannot look at its membership log, and one rank of each other host.
void spread(const Membership& self, const MembershipLog* log, bool to_other_hosts) {
  const std::uint64_t here = self.address(self.slot).host;
  std::set<std::uint64_t> hosts;
  for (const int member : self.members) {
    const Address& address = self.address(member);
    // The one that came with the last step knows of it.
    if (member == self.slot || !address.port || member == self.changes.back().slot) continue;
    const bool unread = address.host == here && (!log || !log->is_read_by(member));
    const bool first = address.host != here && to_other_hosts && hosts.insert(address.host).second;
    if (!unread && !first) continue;
    try {
      tell(self, member, address);
    } catch (const Error&) {
      // It finds out when it meets a rank that knows, or is gone.
    }
  }
}

}  // namespace

void tell(const Membership& from, int slot, const Address& address) {
  ask({address, from.comm, static_cast<std::uint32_t>(slot), from.transport, from.key,
       in_ms(std::min(from.timeout_ms, kTellMs))},
      {.verb = Verb::kTell, .slot = static_cast<std::uint32_t>(from.slot), .epoch = from.epoch}, {},
      told_of(from.changes));
}

std::span<const std::byte> told_of(std::span<const Change> steps) {
  return std::as_bytes(steps);
}

std::vector<Change> steps_in(std::span<const std::byte> told) {
  std::vector<Change> steps(told.size() / sizeof(Change));
  if (told.size() % sizeof(Change) || steps.size() > Info::kMaxChanges)
    fail(ncclRemoteError, "flexccl: [", told.size(), "] bytes are no steps of the epoch");
  if (!steps.empty()) std::memcpy(steps.data(), told.data(), told.size());
  std::erase_if(steps, [](const Change& step) { return step.epoch == 0; });
  return steps;
}

QueryServer::QueryServer(std::shared_ptr<RetentionBuffer> retention, std::shared_ptr<Steps> steps)
    : retention_(std::move(retention)), steps_(std::move(steps)) {}

void QueryServer::serve(OperationRunner* runner) {
  const std::scoped_lock lock(mutex_);
  runner_ = runner;
  served_.notify_all();
}

void QueryServer::leave() {
  const std::scoped_lock lock(mutex_);
  runner_ = nullptr;
  left_ = true;
  served_.notify_all();
}

std::shared_ptr<const Membership> QueryServer::wait_for_membership() {
  std::unique_lock lock(mutex_);
  served_.wait_for(lock, std::chrono::milliseconds(kTellMs), [this] { return runner_ || left_; });
  return runner_ ? runner_->view() : nullptr;
}

void QueryServer::look() {
  const std::scoped_lock lock(mutex_);
  if (runner_) runner_->look();
}

std::shared_ptr<const Membership> QueryServer::membership() {
  const std::scoped_lock lock(mutex_);
  return runner_ ? runner_->view() : nullptr;
}

std::shared_ptr<const Membership> QueryServer::decided_membership() {
  const std::scoped_lock lock(mutex_);
  return runner_ && runner_->placed() ? runner_->view() : nullptr;
}

std::vector<Change> QueryServer::changes_since(std::uint32_t epoch) {
  std::vector<Change> steps;
  if (const auto self = decided_membership())
    for (const Change& step : self->changes)
      if (step.epoch > epoch) steps.push_back(step);
  if (!steps.empty() && steps.front().epoch != epoch + 1) steps.clear();
  steps.resize(Info::kMaxChanges);
  return steps;
}

Answer QueryServer::answer(const Question& question, std::shared_ptr<const void>* owner,
                           std::span<const std::byte>* payload) {
  if (question.verb == Verb::kSteps) {
    const auto steps = std::make_shared<std::vector<Change>>(changes_since(question.epoch));
    *payload = told_of(*steps), *owner = steps;
    return {};
  }
  // What the asking rank knows may be in the membership log already.
  look();
  return retention_->answer(question, owner, payload);
}

void QueryServer::hear(std::span<const std::byte> told) {
  const std::vector<Change> steps = steps_in(told);
  if (steps.empty() || steps_->newest() >= steps.back().epoch) return look();
  steps_->learn(steps);
  look();
  spread_news(false);
}

void QueryServer::join(JoinVisit& visit) {
  const std::vector<Change> told = steps_in(visit.step());
  const auto self = wait_for_membership();
  if (told.size() != 1 || !self) return;
  const Change& step = told.front();
  steps_->note_voter(step);
  const Deadline deadline = in_ms(self->timeout_ms + self->repair_ms);
  const auto over = [&] { return has_passed(deadline) || !membership(); };
  Steps::Vote vote;
  while ((vote = steps_->wait_for_vote(step, std::chrono::steady_clock::now() + kLook)) ==
         Steps::Vote::kOpen)
    if (over() || visit.gone()) return;
  const auto log = steps_->log();
  visit.answer(
      {.availability = vote == Steps::Vote::kOther ? Availability::kGone : Availability::kHere,
       .epoch = steps_->newest()},
      log ? log->fd() : -1);
  // A rank that has agreed to something else meanwhile does not wait for this decision any more.
  while (vote != Steps::Vote::kOther && !visit.comes_decision()) {
    if ((vote = steps_->vote(step)) == Steps::Vote::kOpen || over()) return;
    if (vote == Steps::Vote::kDecided) look();
  }
  if (vote == Steps::Vote::kOther || !steps_->learn(told)) return;
  look();
  visit.give_receipt();
  spread_news(neighbours(*self, step.slot).first == self->slot);
}

// An operation that runs may not have taken the step yet.
void QueryServer::spread_news(bool to_other_hosts) {
  const auto self = decided_membership();
  if (!self) return;
  const Membership now = after(*self, steps_->decided(self->epoch));
  if (now.epoch > 0) spread(now, steps_->log().get(), to_other_hosts);
}

}  // namespace flexccl
