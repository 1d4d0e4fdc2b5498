// What the session itself wants of its device. device.h makes one of a backend, tests their own;
// the part that makes it keeps it until the session has ended. Results are CUresult values.
//
// Any thread, unless it says otherwise.
#ifndef PYFT_SERVER_SESSION_DEVICE_CALLS_H_
#define PYFT_SERVER_SESSION_DEVICE_CALLS_H_

#include <cstdint>
#include <optional>

namespace pyft::server {

class CollectiveMarks;

// How a further thread of the server gets to work on the device.
class DeviceThreads {
 public:
  virtual ~DeviceThreads() = default;
  // What it does first.
  virtual void enter() {}
};

// By default it has nothing to do, ever, and does not fail.
class DeviceCalls : public DeviceThreads {
 public:
  // Runs function(data), which does not block, when the stream reaches this point; the stream goes
  // on afterwards.
  virtual int publish(void* /*stream*/, void (*function)(void*), void* data) {
    function(data);
    return 0;
  }
  // The same, but the stream need not wait for it.
  virtual int signal(void* stream, void (*function)(void*), void* data) {
    return publish(stream, function, data);
  }
  // 0 or 600 (not ready) while the context is usable, else its error.
  virtual int status() { return 0; }
  // The same, asked so that no stream that captures is looked at.
  virtual int status_in_capture() { return status(); }
  // Whether threads of the server execute the device's work; then a piece of it, false: nothing is
  // ready. Else the device works by itself.
  virtual bool works() const { return false; }
  virtual bool work() { return false; }
  // For a process that looks from outside whether the device is stuck: a number that changes when a
  // piece of its work is finished, and how many operations wait for other ranks. Nothing: that
  // cannot be told.
  virtual std::optional<uint64_t> progress() { return {}; }
  virtual std::optional<uint64_t> waiting() { return {}; }
  // False: `waiting` does not know of all collectives, which the vendor's library executes.
  virtual bool sees_collectives() { return true; }
  // By which it knows of them, nullptr where they need none; for the handlers.
  virtual CollectiveMarks* marks() { return nullptr; }
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_SESSION_DEVICE_CALLS_H_
