// What server and agent say to each other about snapshots, for the sake of other ranks.
#ifndef PYFT_SERVER_RECOVERY_CUT_ORDERS_H_
#define PYFT_SERVER_RECOVERY_CUT_ORDERS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "checkpoint/ranks.h"
#include "checkpoint/snapshot/snapshotter.h"
#include "ring/channel.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/rebuilt_communicators.h"

namespace pyft::server {

// The steps of the last cuts that the agent has decided about.
struct Decided {
  std::atomic<uint64_t> agreed{0}, committed{0}, aborted{0};
  std::atomic<uint64_t> interval{0};  // the least K of other ranks
};
// In the link's thread only; false: the message is about something else.
bool decide(ring::Channel& channel, const AgentMessage& message, Decided* decided);

// `rebuilt`: if all ranks replay, else nullptr. All arguments outlive the object.
class CutMessages : public checkpoint::AgentChannel {
 public:
  CutMessages(AgentLink& agent, RebuiltCommunicators* rebuilt, const Decided& decided)
      : agent_(agent), rebuilt_(rebuilt), decided_(decided) {}
  void staged(uint64_t step, uint64_t offset, uint64_t seq) override;
  void prepared(uint64_t step, uint64_t seq) override;
  void request_decision(uint64_t step) override;
  void tell_pace(uint64_t cuts) override;
  uint64_t pace_of_others() override { return rebuilt_ ? decided_.interval.load() : 0; }

 private:
  AgentLink& agent_;
  RebuiltCommunicators* const rebuilt_;
  const Decided& decided_;
};

// The snapshots that exist, for the link's thread.
class Spilling {
 public:
  void set(checkpoint::Snapshotter* snapshotter);  // nullptr: none any more
  // The agent waits for the answer. False: the message is about something else.
  bool spill(const AgentMessage& message, AgentLink* agent);

 private:
  std::mutex mutex_;
  checkpoint::Snapshotter* snapshotter_ = nullptr;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_CUT_ORDERS_H_
