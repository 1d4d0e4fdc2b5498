// Answers the other ranks' questions to this one: those about operations from its retention buffer,
// those about the epoch itself. Outlives the runner as long as a rank is being answered.
#ifndef FLEXCCL_RUNNER_QUERY_SERVER_H_
#define FLEXCCL_RUNNER_QUERY_SERVER_H_

#include <condition_variable>
#include <memory>
#include <mutex>

#include "membership/steps.h"
#include "oplog/retention_buffer.h"
#include "transport/control.h"

namespace flexccl {

class OperationRunner;

class QueryServer final : public Responder {
 public:
  QueryServer(std::shared_ptr<RetentionBuffer> retention, std::shared_ptr<Steps> steps);
  // When the runner is complete; until then it is not touched,
  void serve(OperationRunner* runner);
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
  OperationRunner* runner_ = nullptr;
  bool left_ = false;
  const std::shared_ptr<RetentionBuffer> retention_;
  const std::shared_ptr<Steps> steps_;
};

// Tells `slot` the steps that `from` has taken.
void tell(const Membership& from, int slot, const Address& address);
// Steps as they travel. The second throws ncclRemoteError.
std::span<const std::byte> told_of(std::span<const Change> steps);
std::vector<Change> steps_in(std::span<const std::byte> told);

}  // namespace flexccl

#endif  // FLEXCCL_RUNNER_QUERY_SERVER_H_
