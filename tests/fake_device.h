// The device of a session under test: whatever a test has set a function for, and else what the
// interface does by itself.
#ifndef PYFT_TESTS_FAKE_DEVICE_H_
#define PYFT_TESTS_FAKE_DEVICE_H_

#include <functional>

#include "server/session/device_calls.h"

struct FakeDevice : pyft::server::DeviceCalls {
  int publish(void* stream, void (*function)(void*), void* data) override {
    return on_publish ? on_publish(function, data) : DeviceCalls::publish(stream, function, data);
  }
  int status() override { return on_status ? on_status() : 0; }
  bool works() const override { return static_cast<bool>(on_work); }
  bool work() override { return on_work(); }
  std::optional<uint64_t> progress() override { return known_progress; }
  std::optional<uint64_t> waiting() override { return known_waiting; }
  bool sees_collectives() override { return sees; }
  void enter() override {
    if (on_enter) on_enter();
  }

  std::function<int(void (*function)(void*), void* data)> on_publish;
  std::function<int()> on_status;
  std::function<bool()> on_work;
  std::function<void()> on_enter;
  std::optional<uint64_t> known_progress, known_waiting;
  bool sees = true;
};

#endif  // PYFT_TESTS_FAKE_DEVICE_H_
