// What server and agent say to each other about captures, for the sake of other ranks.
#ifndef PYFT_SERVER_RECOVERY_CUT_ORDERS_H_
#define PYFT_SERVER_RECOVERY_CUT_ORDERS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "ring/channel.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/capture.h"
#include "server/recovery/shared_communicators.h"

namespace pyft::server {

// The steps of the last cuts that the agent has decided about.
struct Decided {
  std::atomic<uint64_t> settled{0}, committed{0}, dropped{0};
  std::atomic<uint64_t> pace{0};  // the least K of other ranks
};
// In the link's thread only; false: the message is about something else.
bool decide(ring::Channel& channel, const AgentMessage& message, Decided* decided);

// The captures that exist, for the link's thread.
class Spilling {
 public:
  void set(Capture* capture);  // nullptr: none any more
  // The agent waits for the answer. False: the message is about something else.
  bool spill(const AgentMessage& message, AgentLink* agent);

 private:
  std::mutex mutex_;
  Capture* capture_ = nullptr;
};

// What the agent learns of captures. `shared`: if all ranks replay.
void tell_of_cuts(AgentLink& agent, SharedCommunicators* shared, RecoveryCalls* calls);
// A store that may have what the member's should; -1 if the agent has none, or does not say.
int ask_for_store(AgentLink& agent, uint64_t owner, uint64_t attempt);
// A connection to the server of a living replica, likewise.
int ask_for_peer(AgentLink& agent, uint64_t attempt);
// Servers that stand by on the same GPU give back what they have taken beforehand. Even if nobody
// says so in time they may have.
bool ask_for_room(AgentLink& agent, uint64_t number);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_CUT_ORDERS_H_
