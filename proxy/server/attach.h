// The server's end of the attach protocol (ring/attach.h).
#ifndef PYFT_SERVER_ATTACH_H_
#define PYFT_SERVER_ATTACH_H_

#include <functional>
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

// Receives the channel on the socket named by PYFT_SERVER_FD, after `before` has returned, which
// may take other messages first. False with a sentence.
bool attach(Attachment* out, std::string* error,
            const std::function<void(int socket)>& before = {});

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
