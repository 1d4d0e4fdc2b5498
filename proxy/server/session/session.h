// State of the one client a server works for. Handlers get it as their first argument.
//
// Threads: the dispatch thread owns it; reply(), publish(), set_sticky() and sweep_fences() may be
// called from any thread (stream callbacks, watchdog).
#ifndef PYFT_SERVER_SESSION_SESSION_H_
#define PYFT_SERVER_SESSION_SESSION_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/recovery/recovery.h"
#include "pyft/handle.h"
#include "ring/channel.h"
#include "ring/reader.h"
#include "ring/wait.h"
#include "server/session/device_calls.h"

namespace pyft::backend {
struct Table;  // proxy/backend/backend.h
}

namespace pyft::server {

// Outcome of dispatching one entry. Not ok: the client broke the protocol and the server ends with
// this sentence. Results of API calls are not errors in this sense: they go into reply().
struct [[nodiscard]] Status {
  std::string text;
  bool names_nothing = false;  // the command names an object that there is not
  bool ok() const { return text.empty(); }
  static Status good() { return {}; }
  static Status broken(std::string text) { return {std::move(text), false}; }
};

// Objects of one kind: index -> object, checked by generation. Indexes come from the client, which
// has a completion word for each: streams, events and communicators publish in the word of theirs.
class HandleTable {
 public:
  // Streams, events and communicators, or others.
  static uint32_t limit_of(HandleKind kind);
  // False: index 0, too large for its kind, or in use.
  bool bind(Handle handle, void* object);
  // nullptr: never bound, already ended, or of another generation.
  void* find(Handle handle) const;
  // The handle of an object, by a look at all of them; 0: it has none.
  uint64_t handle_of(HandleKind kind, const void* object) const;
  // Ends the handle and returns its object, nullptr as find().
  void* unbind(Handle handle);
  template <class F>
  void for_each(F&& f) const {
    for (const Slot& slot : slots_)
      if (slot.live) f(slot.object);
  }

 private:
  struct Slot {
    void* object = nullptr;
    uint32_t generation = 0;
    bool live = false;
  };
  std::vector<Slot> slots_;
};

// What else is asked now and then.
class Sweep {
 public:
  virtual ~Sweep() = default;
  virtual void sweep() = 0;
};

// Others that may have taken memory of the device for themselves.
class RoomMaker {
 public:
  virtual ~RoomMaker() = default;
  // Has them give it back; false: none has any. In the dispatch thread.
  virtual bool make_room() = 0;
};

class Session {
 public:
  Session(ring::Channel& channel, const backend::Table* backend, const ring::Liveness& liveness,
          DeviceCalls& device);
  // Of a device that has nothing to do.
  Session(ring::Channel& channel, const backend::Table* backend, const ring::Liveness& liveness);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  ring::Channel& channel() { return channel_; }
  const backend::Table& backend() const { return *backend_; }
  const ring::Liveness& liveness() const { return liveness_; }
  uint32_t device() const { return channel_.device(); }
  // The backend's number of a device of the program. The same number, unless set.
  int ordinal(uint32_t device) const {
    return device < ordinals_.size() ? ordinals_[device] : static_cast<int>(device);
  }
  int ordinal() const { return ordinal(device()); }
  void set_ordinals(std::vector<int> ordinals) { ordinals_ = std::move(ordinals); }
  checkpoint::Recovery& recovery() { return recovery_; }

  HandleTable& table(HandleKind kind);
  // The object behind a handle value of the expected kind, nullptr if there is none.
  void* find(uint64_t handle, HandleKind kind);
  // Streams 0, 1, 2 are passed as such. False: no such stream.
  bool find_stream(uint64_t handle, void** stream);

  // Answers if the entry asked for it (kWantsReply). What becomes of the error of a call that
  // nothing waits for is the handler's decision (set_sticky). Broken: values or bytes do not fit a
  // slot.
  Status reply(const ring::EntryHeader& header, int32_t code, std::span<const uint64_t> values = {},
               std::span<const std::byte> bytes = {});
  // The device has failed, as far as the client may know of it. Where faults are repaired it does
  // not: this ends the server. Otherwise the first sticky error stays, and a thread that waits for
  // the device is woken to see it. Not `of_device`: a library has failed, and the device works.
  void set_sticky(int32_t code, bool of_device = true);
  // The first one, 0 while there is none. Not read from the page, where the client can write.
  int32_t sticky() const { return sticky_.load(); }
  int32_t take_sticky();
  // 0 or 600 (not ready) while the device works, else its error. Any thread.
  int device_status() const;
  // A stream captures a graph. Around the call that begins or ends it: no other thread looks at
  // streams meanwhile.
  template <class Call>
  int change_captures(Call call) {
    const std::lock_guard lock(captures_mutex_);
    return call(captures_);
  }
  uint64_t open_captures() const { return captures_.load(); }
  // Why nothing can be made on the device any more, 0 while it can.
  int device_failure() const;
  // Changes when a piece of the device's work is finished; 0 where nothing can tell.
  uint64_t device_progress() const { return device_.progress().value_or(0); }
  // An operation that it has come to waits for other ranks.
  bool device_waits() const;
  CollectiveMarks* marks() { return device_.marks(); }
  // The rank shares a communicator with others, and its device may wait for them from now on.
  void shares_communicator() { shares_communicator_ = true; }
  bool has_shared_communicator() const { return shares_communicator_.load(); }
  // Ends the server if this code of a call says that the device has failed and that is repaired.
  void check_device(int32_t code, const char* what) { recovery_.check_device(code, what); }
  void publish(uint32_t word, uint64_t value);
  // Publishes when the stream reaches this point (a host function in the stream). With a sticky
  // error it publishes at once: the device would never come to it.
  Status publish_on_stream(void* stream, uint32_t word, uint64_t value);
  // Runs when the stream reaches this point; must not block nor call the backend. Code of the
  // backend, 0 when it took it. A queued task, and no collaborator: hence a function.
  int on_stream(void* stream, std::function<void()> function);
  // Called by the watchdog: a host function behind a failed kernel never runs, so while
  // fences are outstanding the device is asked whether it has failed.
  void sweep_fences();
  // Called by the heartbeat: shows in the control page what the device does.
  void show_activity();
  // Called by the watchdog as well, with what the handlers have set, which ends with the session.
  void set_sweep(Sweep* sweep);
  bool has_sweep() const { return has_sweep_.load(); }
  void sweep();
  // The dispatch thread lends itself to the device while the ring is empty: DeviceCalls::work().
  // When nothing is left although fences are outstanding, a failure may be the reason: it asks.
  bool work();
  // Not set: none has been taken. It outlives the session's last command.
  void set_room_maker(RoomMaker* maker) { room_maker_ = maker; }
  bool make_room() { return room_maker_ && room_maker_->make_room(); }
  // What further threads of the server do first, to work on this device.
  void enter_device() const { device_.enter(); }
  // Whether this thread may have to execute the device's work.
  bool works() const { return device_.works(); }
  // True when [address, address + bytes) lies in this channel's pinned window.
  bool in_pinned(uint64_t address, uint64_t bytes) const;
  bool in_device_window(uint64_t address, uint64_t bytes) const;

  // State of the handlers, created on first use and destroyed with the session.
  template <class T>
  T& state() {
    static const int tag = 0;
    for (Extra& extra : extras_)
      if (extra.tag == &tag) return *static_cast<T*>(extra.object.get());
    extras_.push_back({&tag, std::shared_ptr<void>(std::make_shared<T>())});
    return *static_cast<T*>(extras_.back().object.get());
  }

 private:
  struct Extra {
    const void* tag;
    std::shared_ptr<void> object;
  };
  struct Fence {
    Session* session;
    uint32_t word;
    uint64_t value;
    bool dead;  // in dead_fences_
    std::list<Fence>::iterator self;
  };
  static void run_fence(void* fence);
  bool may_wait_unseen() const;
  bool answered_before(const ring::EntryHeader& header, int32_t code);
  void publish_outstanding();

  ring::Channel& channel_;
  const backend::Table* backend_;
  const ring::Liveness& liveness_;
  checkpoint::Recovery recovery_;
  std::atomic<int32_t> sticky_{0};
  std::array<HandleTable, 16> tables_;
  std::vector<Extra> extras_;
  DeviceCalls& device_;
  std::vector<int> ordinals_;
  RoomMaker* room_maker_ = nullptr;
  mutable std::mutex captures_mutex_;
  std::atomic<uint64_t> captures_{0};  // streams that capture
  std::mutex sweep_mutex_;
  Sweep* sweep_ = nullptr;
  std::atomic<bool> has_sweep_{false}, shares_communicator_{false};
  std::mutex fences_mutex_;
  std::list<Fence> fences_;       // handed to the device, not yet run
  std::list<Fence> dead_fences_;  // published after a device error; the device may still hold them
};

// How entries are executed.
using Dispatch = Status (*)(Session&, const ring::EntryHeader&, std::span<const std::byte> body,
                            std::span<const std::byte> payload);

// Generated from proxy/api: decodes, resolves handles, calls the backend. For ids >= kFirstCall.
Status dispatch(Session& session, const ring::EntryHeader& header, std::span<const std::byte> body,
                std::span<const std::byte> payload);

}  // namespace pyft::server

#endif  // PYFT_SERVER_SESSION_SESSION_H_
