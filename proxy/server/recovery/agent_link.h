// The server's conversation with the agent after attaching (ring/attach.h: ServerMessage).
#ifndef PYFT_SERVER_RECOVERY_AGENT_LINK_H_
#define PYFT_SERVER_RECOVERY_AGENT_LINK_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "ring/attach.h"
#include "ring/layout.h"

namespace pyft::server {

struct AgentMessage {
  ring::MessageKind kind;
  uint64_t a = 0, b = 0, c = 0;
  std::vector<std::byte> payload;
  int fd = -1;  // that came with it; whoever takes the message closes it
};

// Takes what has come, without waiting; a message without a kind if nothing has. False: it is no
// message, or there will be none any more.
bool receive_message(int from, AgentMessage* out);
// `fd`, if there is one, goes with it and stays the caller's.
void send_message(int to, ring::MessageKind kind, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0,
                  std::span<const std::byte> payload = {}, int fd = -1);

// Says why this process is about to end (kFault). An agent that does not read is waited for, but
// not for long: then it learns only that the server has ended.
void send_last_words(int to, ring::FaultKind kind, int code, uint64_t seq, std::string_view text);

class AgentLink {
 public:
  // Called in the link's own thread for every message of the agent; true: it is dealt with. Others
  // are kept for wait().
  using Handler = std::function<bool(const AgentMessage&)>;

  // The descriptor must stay open as long as the link.
  AgentLink(int fd, Handler handler);
  ~AgentLink();

  // Any thread. A failure means that the agent is gone, which others notice.
  void send(ring::MessageKind kind, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0,
            std::span<const std::byte> payload = {});
  // The next message of this kind about `a`; nothing after `timeout_ms`, or when the agent is gone.
  std::optional<AgentMessage> wait(ring::MessageKind kind, uint64_t a, int timeout_ms);

 private:
  void run(const std::stop_token& stop);

  int fd_;
  Handler handler_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::list<AgentMessage> kept_;
  bool gone_ = false;
  std::jthread thread_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_AGENT_LINK_H_
