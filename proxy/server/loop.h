// The dispatch thread: takes entries from the ring in order and has them executed.
#ifndef PYFT_SERVER_LOOP_H_
#define PYFT_SERVER_LOOP_H_

#include <array>
#include <functional>
#include <string>

#include "ring/reader.h"
#include "server/session.h"

namespace pyft::server {

using Dispatch = Status (*)(Session&, const ring::EntryHeader&, std::span<const std::byte> body,
                            std::span<const std::byte> payload);

class Loop {
 public:
  enum class End { kGoodbye, kAgentGone, kProtocolError };

  // Starts at ring position `start`; what an earlier server has dispatched is replayed.
  Loop(Session& session, Dispatch dispatch, uint64_t start);
  // Starts where an earlier server has stopped.
  Loop(Session& session, Dispatch dispatch);
  // Called for CUT and GATE marks where there is a store.
  using OnMark = std::function<Status(const ring::EntryView&)>;
  void set_on_cut(OnMark on_cut) { on_cut_ = std::move(on_cut); }
  void set_on_gate(OnMark on_gate) { on_gate_ = std::move(on_gate); }
  // Called after each entry, and when the doorbell of an empty ring has been rung.
  void set_on_turn(std::function<void()> on_turn) { on_turn_ = std::move(on_turn); }
  // Called before each entry is executed.
  void set_before(std::function<void(const ring::EntryView&)> before) {
    before_ = std::move(before);
  }
  // Called when the ring is empty and the device has nothing to do: the time is the server's own.
  void set_on_idle(std::function<void()> on_idle) { on_idle_ = std::move(on_idle); }
  // Of a device that works by itself: 0 when it has done all it was given, 600, or its error.
  void set_idle(std::function<int()> idle) { idle_ = std::move(idle); }
  // Called once, when there is nothing (more) to replay.
  void set_on_live(std::function<void()> on_live) { on_live_ = std::move(on_live); }
  // Until the client says goodbye and everything before it is dispatched, the agent's connection
  // ends, or the client breaks the protocol.
  End run();
  const std::string& error() const { return error_; }

  // Headers of the entries dispatched last, oldest first, for the report of a protocol error.
  std::vector<ring::EntryHeader> last_entries() const;

 private:
  Status execute(const ring::EntryView& entry);
  Status mark(const ring::EntryView& entry);
  Status fence(const ring::EntryView& entry);
  Status observed(const ring::EntryView& entry);
  // Executes the device's work until `done`, or something ends that.
  template <class Done>
  void work_until(Done done);
  Status cut(const ring::EntryView& entry);
  void replayed();
  void finish_entry();
  void go_live();
  void kill_if_asked(const ring::EntryView& entry);
  void consumed();
  bool wait_for_entries();  // false: the session is ending

  Session& session_;
  Dispatch dispatch_;
  ring::Reader reader_;
  OnMark on_cut_, on_gate_;
  std::function<void()> on_live_, on_turn_, on_idle_;
  std::function<int()> idle_;
  std::function<void(const ring::EntryView&)> before_;
  bool live_ = false, goodbye_ = false;
  uint64_t cuts_seen_ = 0, entries_since_cut_ = 0;  // for PYFT_KILL_AT
  std::string error_;
  std::array<ring::EntryHeader, 8> last_{};
  uint64_t count_ = 0;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_LOOP_H_
