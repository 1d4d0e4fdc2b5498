// A channel with small areas, and a server thread that executes entries with a test's function.
#ifndef PYFT_TESTS_RING_FIXTURE_H_
#define PYFT_TESTS_RING_FIXTURE_H_

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "alive.h"
#include "ring/channel.h"
#include "ring/reader.h"
#include "ring/wait.h"
#include "ring/writer.h"
#include "server/loop.h"
#include "server/session/session.h"

namespace fixture {

namespace ring = pyft::ring;
namespace server = pyft::server;

inline constexpr uint16_t kCall = ring::kFirstCall;

inline ring::ChannelShape small_shape() {
  ring::ChannelShape shape;
  shape.ring_bytes = 4096;
  shape.object_log_bytes = 16384;
  shape.arena_bytes = 8192;
  shape.bounce_bytes = 8192;
  return shape;
}

inline std::unique_ptr<ring::Channel> make_channel(const ring::ChannelShape& shape) {
  std::string error;
  auto channel = ring::Channel::create(shape, &error);
  if (channel) return channel;
  std::fprintf(stderr, "no channel: %s\n", error.c_str());
  std::exit(1);
}

// The other side's view of the same memory, log read-only.
inline std::unique_ptr<ring::Channel> server_side(const ring::Channel& channel) {
  std::string error;
  ring::ChannelSizes sizes = channel.sizes();
  sizes.pinned = 0;  // one process cannot have the fixed window twice
  auto other =
      ring::Channel::map(ring::Role::kServer, channel.device(), channel.dup_fds(), sizes, &error);
  if (other) return other;
  std::fprintf(stderr, "no server side: %s\n", error.c_str());
  std::exit(1);
}

// What `word` says: the body of test entries.
struct Body {
  uint64_t key, value;
};

inline Body body_of(std::span<const std::byte> bytes) {
  Body body{};
  if (bytes.size() >= sizeof body) std::memcpy(&body, bytes.data(), sizeof body);
  return body;
}

// The thread sanitizer follows virtual addresses: with two mappings of the same memory it would see
// neither the races nor the synchronisation.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kShareMapping = true;
#else
inline constexpr bool kShareMapping = false;
#endif

class ServerThread {
 public:
  ServerThread(ring::Channel& client, server::Dispatch dispatch)
      : ServerThread(client, dispatch, none_) {}
  // The device outlives the object.
  ServerThread(ring::Channel& client, server::Dispatch dispatch, server::DeviceCalls& device)
      : mapped_(kShareMapping ? nullptr : server_side(client)),
        session_(kShareMapping ? client : *mapped_, nullptr, alive_, device) {
    if (kShareMapping) mprotect(client.bounce(), client.bounce_bytes(), PROT_READ | PROT_WRITE);
    thread_ = std::thread([this, dispatch] {
      server::Loop loop(session_, dispatch);
      end_ = loop.run();
      error_ = loop.error();
    });
  }
  // Ends when the client says goodbye (or breaks the protocol).
  server::Loop::End join() {
    if (thread_.joinable()) thread_.join();
    return end_;
  }
  ~ServerThread() { join(); }
  server::Session& session() { return session_; }
  const std::string& error() const { return error_; }

 private:
  AlwaysAlive alive_;
  server::DeviceCalls none_;
  std::unique_ptr<ring::Channel> mapped_;
  server::Session session_;
  std::thread thread_;
  server::Loop::End end_ = server::Loop::End::kAgentGone;
  std::string error_;
};

}  // namespace fixture

#endif  // PYFT_TESTS_RING_FIXTURE_H_
