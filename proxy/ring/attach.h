// How a process gets its channels: one SOCK_SEQPACKET connection to the agent's abstract socket
// "\0$PYFT_AGENT" (no file to leave behind; the peer's uid is checked on both sides).
//
// Client: sends AttachRequest followed by its environment ("A=1\0B=2\0…") the first time a device
// is used; receives AttachReply with four descriptors (log, control, bounce, pinned). It keeps the
// connection open: its end tells the agent that the client is gone, and the agent's end tells the
// client that the agent is gone.
// Server: is started by the agent with PYFT_SERVER_FD=N, a connected seqpacket socket on which the
// agent has sent one AttachReply with the same four descriptors (log opened read-only) and a fifth,
// the store. `text` then changes its environment: lines NAME=VALUE, or a name that goes away. After
// that both sides send messages (api/wire/messages.toml); so they do before, while a server stands
// by.
// pyft/agent/channel/protocol.py is the Python side; tools/gen/gen_layout.py says where fields lie.
#ifndef PYFT_RING_ATTACH_H_
#define PYFT_RING_ATTACH_H_

#include <cstdint>

namespace pyft::ring {

inline constexpr uint32_t kAttachMagic = 0x41544650;  // "PFTA"
inline constexpr uint32_t kAttachVersion = 2;
inline constexpr uint32_t kMaxEnvironmentBytes = 120 * 1024;  // longer ones are an error, named

struct AttachRequest {
  uint32_t magic, version;
  uint32_t pid, device;
  uint32_t environment_bytes, reserved;
};

struct AttachReply {
  uint32_t magic, version;
  int32_t error;  // 0, or an errno; then `text` says why and no descriptors come
  uint32_t device;
  uint32_t client_pid, server_pid, epoch, reserved;
  uint64_t log_bytes, control_bytes, bounce_bytes, pinned_bytes;
  uint64_t store_bytes;  // 0 for the client, which does not get it
  char text[256];
};

// The payload of the message Line: how many messages this rank has exchanged with another one.
struct PairCounters {
  uint64_t rank;  // in the communicator
  uint64_t sent, received;
};
static_assert(sizeof(AttachRequest) == 24 && sizeof(AttachReply) == 328);

}  // namespace pyft::ring

#endif  // PYFT_RING_ATTACH_H_
