#include "server/recovery/agent_requests.h"

namespace pyft::server {

namespace {

constexpr int kStoreAnswerMs = 10'000;
constexpr int kRoomAnswerMs = 5'000;
constexpr int kPeerAnswerMs = 2'000;  // the stores have it all

}  // namespace

int AgentRequests::open(uint64_t owner, uint64_t attempt) {
  agent_.send(msg::WantStore{.owner = owner, .attempt = attempt});
  const auto answer = agent_.wait<msg::Store>(owner, kStoreAnswerMs);
  return answer ? answer->fd : -1;
}

int AgentRequests::connect(uint64_t attempt) {
  agent_.send(msg::WantPeer{.attempt = attempt});
  const auto answer = agent_.wait<msg::Peer>(attempt, kPeerAnswerMs);
  return answer ? answer->fd : -1;
}

bool AgentRequests::make_room() {
  agent_.send(msg::MemoryPressure{.number = ++asked_for_room_});
  const auto answer = agent_.wait<msg::MemoryFreed>(asked_for_room_, kRoomAnswerMs);
  return !answer || answer->freed;
}

}  // namespace pyft::server
