// The device of a session for snapshots and restores: the backend's table, what the backend offers
// beside it, and the handlers' records of what the program has mapped and loaded.
#ifndef PYFT_SERVER_RECOVERY_SESSION_DEVICE_H_
#define PYFT_SERVER_RECOVERY_SESSION_DEVICE_H_

#include <memory>

#include "backend/backend.h"
#include "checkpoint/device.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/memory/threads.h"
#include "checkpoint/resources/objects.h"
#include "server/digest/device_digests.h"
#include "server/handlers/ready_modules.h"
#include "server/recovery/device_copies.h"
#include "server/session/session.h"

namespace pyft::server {

// Which digest blocks have: one that a device can compute, where the server cannot look at the
// device's memory. It does not depend on whether this device can: all ranks have the same.
ring::DigestKind digest_kind(const backend::Extras& extras);

// The memory of a real GPU, which only the driver copies.
class DriverMemory : public checkpoint::DeviceMemory {
 public:
  // The device computes digests that it can compute, if this one can; else it is said why not.
  // Before the program's modules, unless there is something `ready` that was made then.
  DriverMemory(Session& session, DeviceCopies& copies, checkpoint::DigestKey key,
               std::shared_ptr<DeviceDigests> ready = {});
  int read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) override;
  int read_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                  const checkpoint::TakeDigest& hashed) override {
    return copies_.read_hashed(next, take, hashed);
  }
  int write(const checkpoint::NextContent& next) override;
  unsigned threads() override;
  void enter() override { session_.enter_device(); }
  bool hashes() const override { return hashes_; }
  int digests(std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out) override;

 private:
  Session& session_;
  DeviceCopies& copies_;
  std::shared_ptr<DeviceDigests> digests_;  // nullptr: not, or not any more
  bool hashes_ = false;
};

// That of a soft GPU, which is memory of this process.
class SoftMemory : public DriverMemory {
 public:
  SoftMemory(Session& session, DeviceCopies& copies, checkpoint::DigestKey key,
             const backend::Extras& extras)
      : DriverMemory(session, copies, key), extras_(extras) {}
  // What they look at: a soft GPU does one thing at a time.
  unsigned threads() override { return checkpoint::threads_at_once(); }
  bool views() const override { return true; }
  const std::byte* view(uint64_t address, uint64_t bytes) override {
    return static_cast<const std::byte*>(extras_.view(address, bytes));
  }
  bool untouched(uint64_t address, uint64_t bytes) override {
    return extras_.untouched && extras_.untouched(address, bytes) != 0;
  }

 private:
  const backend::Extras& extras_;
};

class SessionState : public checkpoint::DeviceState {
 public:
  SessionState(Session& session, const backend::Extras& extras)
      : session_(session), extras_(extras) {}
  int idle() override;
  bool work() override { return session_.work(); }
  uint64_t progress() override { return session_.device_progress(); }
  bool waits() override;
  bool capturing() override;
  void mapped(std::vector<checkpoint::MemoryRange>* ranges) override;
  std::string out_of_reach() override;
  void variables(std::vector<ring::ManifestPlace>* places) override;
  checkpoint::MemoryRange kernel_heap() override;
  int status() override { return session_.device_status(); }
  // Scratch memory of libraries: all streams have come to their ends.
  void saved(uint64_t seq) override;
  // A stream reads it when it reaches a copy, not when it is asked to copy.
  bool reads_host(std::byte* at, uint64_t bytes) override;

 private:
  Session& session_;
  const backend::Extras& extras_;
};

class SessionPlacement : public checkpoint::Placement {
 public:
  // `ready`: modules for this session's objects that are loaded already; nullptr: none.
  SessionPlacement(Session& session, const backend::Extras& extras, ReadyModules* ready);
  int place(const ring::ManifestPlace& place) override;
  bool relocates() const override { return !extras_.module_variables; }
  std::string relocate(const std::vector<ring::ManifestPlace>& before) override;
  std::optional<size_t> choose_modules(std::span<const checkpoint::ModuleImage> images,
                                       std::span<const ring::ManifestPlace> places) override;

 private:
  Session& session_;
  const backend::Extras& extras_;
  ReadyModules* const ready_;
};

// What makes its objects again.
class SessionObjects : public checkpoint::ObjectMaker {
 public:
  SessionObjects(Session& session, Dispatch dispatch) : session_(session), dispatch_(dispatch) {}
  std::string execute(const ring::EntryHeader& header, std::span<const std::byte> body,
                      std::span<const std::byte> payload) override {
    return dispatch_(session_, header, body, payload).text;
  }
  bool failed() override { return session_.take_sticky() != 0; }
  bool imports(const ring::EntryHeader& header) const override;

 private:
  Session& session_;
  const Dispatch dispatch_;
};

// All of one session. Everything named here outlives it.
class SessionDevice : public RoomMaker {
 public:
  // `own`: memory of the server's own on the device is wanted, and copies to it in a stream.
  SessionDevice(Session& session, const backend::Backend& backend, checkpoint::DigestKey key,
                bool own, std::shared_ptr<DeviceDigests> digests = {},
                ReadyModules* modules = nullptr);
  checkpoint::Device parts() { return {*memory_, state_, background_.get(), own_.get()}; }
  checkpoint::DeviceMemory& memory() { return *memory_; }
  checkpoint::DeviceState& state() { return state_; }
  checkpoint::Placement& placement() { return placement_; }
  // Gives back what copies use, and asks these as well.
  void set_others(RoomMaker* others) { others_ = others; }
  bool make_room() override;

 private:
  DeviceCopies copies_;
  RoomMaker* others_ = nullptr;
  const std::unique_ptr<checkpoint::DeviceMemory> memory_;
  SessionState state_;
  SessionPlacement placement_;
  std::unique_ptr<checkpoint::BackgroundReads> background_;
  std::unique_ptr<checkpoint::OwnMemory> own_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_SESSION_DEVICE_H_
