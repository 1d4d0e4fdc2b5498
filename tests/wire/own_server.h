// A server's session on a channel of its own, without a client; behind is a table of the test's.
#ifndef PYFT_TESTS_WIRE_OWN_SERVER_H_
#define PYFT_TESTS_WIRE_OWN_SERVER_H_

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "one_process.h"
#include "server/handlers/handlers.h"

inline std::unique_ptr<pyft::ring::Channel> make_channel(uint64_t pinned_bytes = 0) {
  std::string error;
  pyft::ring::ChannelShape shape;
  shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
  shape.pinned_bytes = pinned_bytes;  // at one fixed address
  return pyft::ring::Channel::create(shape, &error);
}

struct OwnServer {
  explicit OwnServer(const pyft::backend::Table* table, uint64_t pinned_bytes = 0)
      : channel(make_channel(pinned_bytes)), session(*channel, table, alive) {}
  // The device outlives the object.
  OwnServer(const pyft::backend::Table* table, pyft::server::DeviceCalls& device)
      : channel(make_channel()), session(*channel, table, alive, device) {}
  template <class Command>
  pyft::server::Status dispatch(pyft::Call call, const Command& command) {
    pyft::ring::EntryHeader header{};
    header.call = static_cast<uint16_t>(call);
    header.reply_slot = pyft::ring::kNoSlot;
    return pyft::server::dispatch(session, header, std::as_bytes(std::span(&command, 1)), {});
  }
  std::unique_ptr<pyft::ring::Channel> channel;
  AlwaysAlive alive;
  pyft::server::Session session;
};

#endif  // PYFT_TESTS_WIRE_OWN_SERVER_H_
