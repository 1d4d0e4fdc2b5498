// The server's end of the attach protocol (ring/attach.h).
#ifndef PYFT_SERVER_ATTACH_H_
#define PYFT_SERVER_ATTACH_H_

#include <memory>
#include <string>

#include "pyft/unique_fd.h"
#include "ring/channel.h"
#include "ring/wait.h"

namespace pyft::server {

struct Attachment {
  std::unique_ptr<ring::Channel> channel;
  UniqueFd agent;
  uint32_t client_pid = 0;
};

// Two steps, since a server that stands by takes other messages in between. False with a sentence.
// First: the connection to the agent, which is the descriptor that PYFT_SERVER_FD names.
bool connect_agent(Attachment* out, std::string* error);
// Then: the agent says whose server this is, and gives it the channel.
bool receive_channel(Attachment* out, std::string* error);

// To the server's log.
void say(const Attachment& attachment, const std::string& sentence);

// The session is worth going on with as long as the agent's connection is open: the agent closes it
// when the client is gone.
class ServerLiveness : public ring::Liveness {
 public:
  explicit ServerLiveness(int agent_fd) : agent_fd_(agent_fd) {}
  ring::WaitStatus check() const override;

 private:
  int agent_fd_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_ATTACH_H_
