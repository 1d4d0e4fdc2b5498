// The server's conversation with the agent after attaching (api/wire/messages.toml).
#ifndef PYFT_SERVER_RECOVERY_AGENT_LINK_H_
#define PYFT_SERVER_RECOVERY_AGENT_LINK_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/wire/messages.h"
#include "checkpoint/ranks.h"
#include "ring/layout.h"

namespace pyft::server {

struct AgentMessage {
  ring::MessageKind kind{};
  ring::MessageWords words{};
  std::vector<std::byte> payload;
  int fd = -1;  // that came with it; the part that takes the message closes it

  // What it says, if it is of that kind.
  template <typename Message>
  std::optional<Message> as() const {
    if (kind != Message::kKind) return {};
    return Message::of(words);
  }
};

// A message of a kind that was waited for.
template <typename Message>
struct Answer : Message {
  std::vector<std::byte> payload;
  int fd = -1;  // as above
};

// Takes what has come, without waiting; a message without a kind if nothing has. False: it is no
// message, or there will be none any more.
bool receive_message(int from, AgentMessage* out);
// `fd`, if there is one, goes with it and stays the caller's.
void send_words(int to, ring::MessageKind kind, const ring::MessageWords& words,
                std::span<const std::byte> payload = {}, int fd = -1);
template <typename Message>
void send_message(int to, const Message& message, std::span<const std::byte> payload = {},
                  int fd = -1) {
  send_words(to, Message::kKind, message.words(), payload, fd);
}

// Says why this process is about to end (kFault). An agent that does not read is waited for, but
// not for long: then it learns only that the server has ended.
void send_last_words(int to, ring::FaultKind kind, int code, uint64_t seq, std::string_view text);

namespace msg = ring::msg;

// What the agent is told of a session. The descriptor stays the caller's.
class AgentReports : public checkpoint::RecoveryReports {
 public:
  explicit AgentReports(int to) : to_(to) {}
  void ends(ring::FaultKind kind, int code, uint64_t seq, const std::string& text) override {
    send_last_words(to_, kind, code, seq, text);
  }
  void live() override { send_message(to_, msg::Live{}); }

 private:
  const int to_;
};

class AgentLink {
 public:
  // Gets every message of the agent first, in the link's own thread.
  class Handler {
   public:
    virtual ~Handler() = default;
    // True: it is dealt with. Others are kept for wait().
    virtual bool take(const AgentMessage& message) = 0;
  };

  // The descriptor must stay open as long as the link, and the handler outlives it.
  AgentLink(int fd, Handler& handler);
  ~AgentLink();

  // Any thread. A failure means that the agent is gone, which others notice.
  template <typename Message>
  void send(const Message& message, std::span<const std::byte> payload = {}) {
    send_message(fd_, message, payload);
  }
  // The next message of this kind whose first field is `about`; nothing after `timeout_ms`, or when
  // the agent is gone.
  template <typename Message>
  std::optional<Answer<Message>> wait(uint64_t about, int timeout_ms) {
    auto found = wait_for(Message::kKind, about, timeout_ms);
    if (!found) return {};
    return Answer<Message>{Message::of(found->words), std::move(found->payload), found->fd};
  }

 private:
  std::optional<AgentMessage> wait_for(ring::MessageKind kind, uint64_t about, int timeout_ms);
  void run(const std::stop_token& stop);

  int fd_;
  Handler& handler_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::list<AgentMessage> kept_;
  bool gone_ = false;
  std::jthread thread_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_AGENT_LINK_H_
