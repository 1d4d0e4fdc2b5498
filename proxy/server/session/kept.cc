#include "server/session/kept.h"

#include <cstring>
#include <string>

namespace pyft::server {

namespace {

constexpr uint64_t kSeed = 0xc011'ec71'7e;  // digests are compared within one job only

}  // namespace

// Precondition: the memory is mapped, as that of a collective in its stream is. nullptr: no bytes.
const void* Kept::look(const Session& session, uint64_t address, uint64_t bytes) const {
  if (!bytes) return nullptr;
  if (session.in_pinned(address, bytes)) return reinterpret_cast<const void*>(address);
  return view_(address, bytes);
}

ring::Digest Kept::contribution(const Session& session, const Exchanged& exchanged) const {
  const void* const from = look(session, exchanged.sends, exchanged.send_bytes);
  if (!from) return {};
  return checkpoint::digest(static_cast<const std::byte*>(from), exchanged.send_bytes, kSeed);
}

ring::JournalRecord* Kept::before(Session& session, uint64_t seq, void* stream,
                                  const Exchanged& exchanged) {
  if (session.open_captures()) return nullptr;
  ring::JournalRecord* const record =
      session.recovery().journal().keep(seq, exchanged.receive_bytes);
  if (!record) return nullptr;
  const auto digest = [this, &session, record, exchanged] {
    record->digest = contribution(session, exchanged);
  };
  return session.on_stream(stream, digest) ? nullptr : record;
}

void Kept::after(Session& session, void* stream, const Exchanged& exchanged,
                 ring::JournalRecord* record) {
  if (!record) return;
  session.on_stream(stream, [this, &session, record, exchanged] {
    const uint64_t bytes = exchanged.receive_bytes;
    const void* const from = look(session, exchanged.receives, bytes);
    if (bytes && !from) return;
    if (from) std::memcpy(checkpoint::Journal::data(record), from, bytes);
    record->filled.store(1, std::memory_order_release);
  });
}

void Kept::answer(Session& session, const ring::EntryHeader& header, void* stream,
                  const Exchanged& exchanged) {
  const uint64_t seq = header.seq;
  ring::JournalRecord* const record =
      session.recovery().journal().find(seq, 0, ring::JournalKind::kCollective);
  if (!record || !record->filled.load() || record->bytes != exchanged.receive_bytes ||
      session.open_captures())
    session.recovery().fail(
        ring::FaultKind::kUnrecoverable, kNotKept,
        "the result of the collective of entry [" + std::to_string(seq) + "] was not kept", seq);
  session.recovery().comparison_begins();
  const auto call = header.call;
  session.on_stream(stream, [this, &session, record, exchanged, seq, call] {
    if (contribution(session, exchanged) == record->digest)
      session.recovery().agreed();
    else
      session.recovery().differed({seq, call, "another contribution to a collective"});
    const uint64_t bytes = exchanged.receive_bytes;
    const void* const to = look(session, exchanged.receives, bytes);
    if (to) std::memcpy(const_cast<void*>(to), checkpoint::Journal::data(record), bytes);
    session.recovery().comparison_ends();
  });
}

}  // namespace pyft::server
