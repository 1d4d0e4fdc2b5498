// How a process gets its channels: one SOCK_SEQPACKET connection to the agent's abstract socket
// "\0$PYFT_AGENT" (no file to leave behind; the peer's uid is checked on both sides).
//
// Client: sends AttachRequest followed by its environment ("A=1\0B=2\0…") the first time a device
// is used; receives AttachReply with four descriptors (log, control, bounce, pinned). It keeps the
// connection open: its end tells the agent that the client is gone, and the agent's end tells the
// client that the agent is gone.
// Server: is started by the agent with PYFT_SERVER_FD=N, a connected seqpacket socket on which the
// agent has sent one AttachReply with the same four descriptors (log opened read-only).
// pyft/agent/protocol.py is the Python side; tests/unit/test_protocol.py compares both.
#ifndef PYFT_RING_ATTACH_H_
#define PYFT_RING_ATTACH_H_

#include <cstdint>

namespace pyft::ring {

inline constexpr uint32_t kAttachMagic = 0x41544650;  // "PFTA"
inline constexpr uint32_t kAttachVersion = 1;
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
  char text[256];
};
static_assert(sizeof(AttachRequest) == 24 && sizeof(AttachReply) == 320);

}  // namespace pyft::ring

#endif  // PYFT_RING_ATTACH_H_
