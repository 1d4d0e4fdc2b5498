// The dispatch thread: takes entries from the ring in order and has them executed.
#ifndef PYFT_SERVER_LOOP_H_
#define PYFT_SERVER_LOOP_H_

#include <array>
#include <string>

#include "ring/reader.h"
#include "server/session.h"

namespace pyft::server {

using Dispatch = Status (*)(Session&, const ring::EntryHeader&, std::span<const std::byte> body,
                            std::span<const std::byte> payload);

class Loop {
 public:
  enum class End { kGoodbye, kAgentGone, kProtocolError };

  Loop(Session& session, Dispatch dispatch);
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
  void consumed();
  bool wait_for_entries();  // false: the session is ending

  Session& session_;
  Dispatch dispatch_;
  ring::Reader reader_;
  bool goodbye_ = false;
  std::string error_;
  std::array<ring::EntryHeader, 8> last_{};
  uint64_t count_ = 0;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_LOOP_H_
