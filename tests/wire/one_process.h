// Client and server of one device in one process, over memory; behind is a table of the test's.
#ifndef PYFT_TESTS_WIRE_ONE_PROCESS_H_
#define PYFT_TESTS_WIRE_ONE_PROCESS_H_

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "alive.h"
#include "backend/mock.h"
#include "client/device/device.h"
#include "server/handlers/handlers.h"
#include "server/loop.h"

struct OneProcess {
  // The server does not have the pinned window: one process cannot have it twice.
  explicit OneProcess(const pyft::backend::Table* table, uint64_t pinned_bytes = 0) {
    setenv("PYFT_AGENT", "test", 1);
    setenv("PYFT_DEVICES", "1", 1);
    std::string error;
    pyft::ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
    shape.pinned_bytes = pinned_bytes;
    auto channel = pyft::ring::Channel::create(shape, &error);
    pyft::ring::ChannelSizes sizes = channel->sizes();
    sizes.pinned = 0;
    server_side =
        pyft::ring::Channel::map(pyft::ring::Role::kServer, 0, channel->dup_fds(), sizes, &error);
    pyft::ring::ClientAttachment attachment;
    attachment.channel = std::move(channel);
    device = pyft::client::adopt(0, std::move(attachment));
    session = std::make_unique<pyft::server::Session>(*server_side, table, alive, counted);
    beside = std::make_unique<pyft::server::Session>(*server_side, table, alive, counted);
    std::thread([this] {
      pyft::server::Loop loop(*session, pyft::server::dispatch);
      loop.run();
    }).detach();
  }

  // Calls of the mock since the last look, joined by blanks.
  std::string calls() {
    device->writer().wait_consumed_all();
    return pyft::backend::mock::calls().take();
  }

  // The sentence with which a server of its own refuses a hand-made command, or "".
  template <class Command>
  std::string refused(pyft::Call call, const Command& command, pyft::server::Body payload = {}) {
    pyft::ring::EntryHeader header{};
    header.call = static_cast<uint16_t>(call);
    header.reply_slot = pyft::ring::kNoSlot;
    return pyft::server::dispatch(*beside, header, std::as_bytes(std::span(&command, 1)), payload)
        .text;
  }

  uint64_t published() const { return counted.publications; }

  AlwaysAlive alive;
  std::unique_ptr<pyft::ring::Channel> server_side;
  pyft::client::Device* device = nullptr;
  struct Counted : pyft::server::DeviceCalls {
    int publish(void* stream, void (*function)(void*), void* data) override {
      publications.fetch_add(1);
      {
        const std::lock_guard lock(mutex);
        if (held && stream == held) return held_back.emplace_back(function, data), 0;
      }
      return DeviceCalls::publish(stream, function, data);
    }
    // This stream of the backend stands still, until release().
    void hold(const void* stream) {
      const std::lock_guard lock(mutex);
      held = stream;
    }
    void release() {
      const std::lock_guard lock(mutex);
      held = nullptr;
      for (const auto& [function, data] : std::exchange(held_back, {})) function(data);
    }
    std::atomic<uint64_t> publications{0};
    std::mutex mutex;  // guards the two below
    const void* held = nullptr;
    std::vector<std::pair<void (*)(void*), void*>> held_back;
  } counted;
  std::unique_ptr<pyft::server::Session> session, beside;
};

#endif  // PYFT_TESTS_WIRE_ONE_PROCESS_H_
