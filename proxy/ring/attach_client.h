// How a client gets a channel from the agent. See attach.h for the protocol.
#ifndef PYFT_RING_ATTACH_CLIENT_H_
#define PYFT_RING_ATTACH_CLIENT_H_

#include <memory>
#include <string>

#include "pyft/unique_fd.h"
#include "ring/attach.h"
#include "ring/channel.h"

namespace pyft::ring {

struct ClientAttachment {
  std::unique_ptr<Channel> channel;
  UniqueFd agent;  // keep open: its end means "client gone" to the agent and "agent gone" to us
  AttachReply reply{};
};

// Connects to the abstract socket `agent_name` (value of PYFT_AGENT), checks the peer's uid, sends
// the request with this process's environment and waits for the descriptors (60 s: the agent starts
// a server first). False with one sentence in *error.
bool attach_client(const char* agent_name, uint32_t device, ClientAttachment* out,
                   std::string* error);

// Receives an AttachReply and its four descriptors from a connected seqpacket socket; used by
// client and server. False with a sentence.
bool receive_attach_reply(int socket, int timeout_ms, AttachReply* reply, ChannelFds* fds,
                          std::string* error);

}  // namespace pyft::ring

#endif  // PYFT_RING_ATTACH_CLIENT_H_
