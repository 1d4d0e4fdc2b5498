// Answers the other ranks' questions to this one: those about operations from its history, those
// about the epoch itself. Outlives the runner as long as somebody is being answered.
#ifndef FLEXCCL_CORE_DESK_H_
#define FLEXCCL_CORE_DESK_H_

#include <condition_variable>
#include <memory>
#include <mutex>

#include "core/history.h"
#include "core/steps.h"
#include "transport/control.h"

namespace flexccl {

class Runner;

class Desk final : public Responder {
 public:
  Desk(std::shared_ptr<History> history, std::shared_ptr<Steps> steps);
  // When the runner is complete; until then it is not touched,
  void serve(Runner* runner);
  // nor afterwards.
  void leave();

  Answer answer(const Question& question, std::shared_ptr<const void>* owner,
                std::span<const std::byte>* payload) override;
  void hear(std::span<const std::byte> told) override;
  void join(JoinVisit& visit) override;
  void look() override;

 private:
  // Null when the runner is not there.
  std::shared_ptr<const Membership> membership();
  // Nor when it is new and has not decided yet: others take what it tells of its epoch for decided.
  std::shared_ptr<const Membership> decided_membership();
  // The same once it is there, or gone.
  std::shared_ptr<const Membership> wait_for_membership();
  void spread_news(bool to_other_hosts);
  std::vector<Change> changes_since(std::uint32_t epoch);

  std::mutex mutex_;
  std::condition_variable served_;
  Runner* runner_ = nullptr;
  bool left_ = false;
  const std::shared_ptr<History> history_;
  const std::shared_ptr<Steps> steps_;
};

// Tells `slot` the steps that `from` has taken.
void tell(const Membership& from, int slot, const Address& address);
// Steps as they travel. The second throws ncclRemoteError.
std::span<const std::byte> told_of(std::span<const Change> steps);
std::vector<Change> steps_in(std::span<const std::byte> told);

}  // namespace flexccl

#endif  // FLEXCCL_CORE_DESK_H_
