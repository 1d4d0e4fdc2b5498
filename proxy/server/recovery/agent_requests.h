// What a server asks the agent for, and waits until it answers. Dispatch thread.
#ifndef PYFT_SERVER_RECOVERY_AGENT_REQUESTS_H_
#define PYFT_SERVER_RECOVERY_AGENT_REQUESTS_H_

#include <cstdint>

#include "checkpoint/store/remote_stores.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/peer_import.h"
#include "server/session/session.h"

namespace pyft::server {

class AgentRequests : public checkpoint::StoreSource, public PeerServers, public RoomMaker {
 public:
  explicit AgentRequests(AgentLink& agent) : agent_(agent) {}
  // -1 also if the agent does not say.
  int open(uint64_t owner, uint64_t attempt) override;
  int connect(uint64_t attempt) override;
  // Servers that stand by on the same GPU give back what they have taken beforehand. Even if none
  // says so in time they may have.
  bool make_room() override;

 private:
  AgentLink& agent_;
  uint64_t asked_for_room_ = 0;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_AGENT_REQUESTS_H_
