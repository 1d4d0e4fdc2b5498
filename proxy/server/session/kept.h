// What collectives have left in a rank's memory, for its auditor, which has no other ranks to make
// them with. A rank keeps the result in its journal, with a digest of what it has put in. An
// auditor compares what it would have put in, and takes the result from there.
#ifndef PYFT_SERVER_SESSION_KEPT_H_
#define PYFT_SERVER_SESSION_KEPT_H_

#include <cstdint>

#include "checkpoint/digest/digest.h"
#include "server/session/session.h"

namespace pyft::server {

// Exit code in the last words of an auditor that finds no result of a collective.
inline constexpr int kNotKept = 1;

// What one collective reads and writes of this rank's memory; without bytes: nothing.
struct Exchanged {
  uint64_t sends = 0, send_bytes = 0;
  uint64_t receives = 0, receive_bytes = 0;
};

class Kept {
 public:
  using View = const void* (*)(unsigned long long address, unsigned long long bytes);
  enum class Role { kNone, kKeeps, kAnswers };
  void begin(Role role, View view) {
    role_ = role;
    view_ = view;
  }
  bool keeps() const { return role_ == Role::kKeeps; }
  bool answers() const { return role_ == Role::kAnswers; }

  // Around the collective of this entry in its stream. What is captured into a graph is not kept.
  // Within a group the second call comes when the group has ended.
  ring::JournalRecord* before(Session& session, uint64_t seq, void* stream,
                              const Exchanged& exchanged);
  void after(Session& session, void* stream, const Exchanged& exchanged,
             ring::JournalRecord* record);

  // Instead of it.
  void answer(Session& session, const ring::EntryHeader& header, void* stream,
              const Exchanged& exchanged);

 private:
  const void* look(const Session& session, uint64_t address, uint64_t bytes) const;
  ring::Digest contribution(const Session& session, const Exchanged& exchanged) const;

  Role role_ = Role::kNone;
  View view_ = nullptr;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_SESSION_KEPT_H_
