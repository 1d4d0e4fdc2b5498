// Reads entries by position: the server (trusts nothing) and the trace reader (also of a ring whose
// writer was killed, or is still writing).
//
// Header and body are copied out before they are checked, so that a client which changes them
// afterwards changes nothing we act on. Payloads are looked at in place: they are data.
#ifndef PYFT_RING_READER_H_
#define PYFT_RING_READER_H_

#include <span>
#include <string>
#include <vector>

#include "ring/channel.h"

namespace pyft::ring {

struct EntryView {
  EntryHeader header;
  uint64_t position = 0;
  std::span<const std::byte> body;     // padded to kEntryAlign; valid until the next call of next()
  std::span<const std::byte> payload;  // in the arena; empty if absent or no longer there
  bool payload_overwritten = false;    // trace only
};

class Reader {
 public:
  enum class Mode { kServer, kTrace };
  enum class Next { kEntry, kEmpty, kDamaged };

  Reader(const LogView& log, Mode mode, uint64_t start);
  // A trace reader at the oldest entry that is still whole.
  static Reader trace(const LogView& log);

  Next next(EntryView* out);
  // Position after the last entry handed out: all before it is done with.
  uint64_t position() const { return position_; }
  const std::string& error() const { return error_; }  // why kDamaged; final

 private:
  Next damaged(const std::string& what);
  bool check_header(const EntryHeader& header);
  bool find_payload(EntryView* out);
  bool overtaken();

  LogView log_;
  Mode mode_;
  uint64_t seen_ = 0;  // end of the ring at the last look
  uint64_t position_;
  uint64_t last_seq_ = 0;
  std::string error_;
  std::vector<std::max_align_t> copy_;
};

}  // namespace pyft::ring

#endif  // PYFT_RING_READER_H_
