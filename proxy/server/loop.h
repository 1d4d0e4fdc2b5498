// The dispatch thread: takes entries from the ring in order and has them executed.
#ifndef PYFT_SERVER_LOOP_H_
#define PYFT_SERVER_LOOP_H_

#include <array>
#include <string>
#include <vector>

#include "ring/reader.h"
#include "server/kill_places.h"
#include "server/session/session.h"

namespace pyft::server {

class Loop {
 public:
  enum class End { kGoodbye, kAgentGone, kProtocolError };

  // What is done beside the entries where there is a store. In the loop's thread.
  class Hooks {
   public:
    virtual ~Hooks() = default;
    // Before each entry is executed.
    virtual void before(const ring::EntryView&) {}
    // After each entry, and when the doorbell of an empty ring has been rung.
    virtual void turn() {}
    // The ring is empty and the device has nothing to do: the time is the server's own.
    virtual void idle() {}
    // CUT and GATE marks.
    virtual void cut(const ring::EntryView&, const ring::CutMark&) {}
    virtual void gate() {}
    // Of a device that works by itself: 0 when it has done all it was given, 600, or its error.
    virtual int device() { return 0; }
  };

  // Starts at ring position `start`; what an earlier server has dispatched is replayed.
  Loop(Session& session, Dispatch dispatch, uint64_t start);
  // Starts where an earlier server has stopped.
  Loop(Session& session, Dispatch dispatch);
  // Outlive the loop; nullptr, as at first: there are none.
  void set_hooks(Hooks* hooks) { hooks_ = hooks; }
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
  void kill_if_asked(const ring::EntryView& entry);
  void consumed();
  bool wait_for_entries();  // false: the session is ending

  Session& session_;
  Dispatch dispatch_;
  ring::Reader reader_;
  Hooks* hooks_ = nullptr;
  bool goodbye_ = false;
  std::vector<KillPlace> kill_places_;
  uint64_t cuts_seen_ = 0, entries_since_cut_ = 0;  // for these
  std::string error_;
  std::array<ring::EntryHeader, 8> last_{};
  uint64_t count_ = 0;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_LOOP_H_
