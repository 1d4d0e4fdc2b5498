// What it means that a replay computes something else than the program has been told:
// docs/concepts/replay.md.
#ifndef PYFT_CHECKPOINT_REPLAY_DIVERGENCE_H_
#define PYFT_CHECKPOINT_REPLAY_DIVERGENCE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/replay/numbers.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

// What is done about a value that is another one in a replay.
enum class DivergencePolicy {
  kStrict,  // the replay ends
  kReport,  // it is counted, unless the program may have decided something by it
};
// PYFT_DIVERGENCE, which the agent sets.
DivergencePolicy divergence_policy();

// What the replay before this one has found in the place of a value that differs.
enum class Repeated {
  kNot,     // it did not come there
  kSame,    // the same as this one: so the program was told a wrong value
  kAnother  // something else: the program does not repeat its numbers
};

// One value that differs.
struct Difference {
  uint64_t seq = 0;   // entry that handed it out
  uint16_t call = 0;  // of the entry; 0: it is this entry or one before it
  std::string what;   // both values
  Weight weight = Weight::kUnknown;
  Repeated repeated = Repeated::kNot;
  bool is_code = false;  // of a call
  // In an audit: the rank's server may have replaced what was told, and nothing says by what.
  bool told_only = false;
};

// Of a result, so many bytes are kept: all of a small one, of others pieces from everywhere.
inline constexpr uint64_t kSampleBytes = 4096;
uint64_t sample_bytes(uint64_t bytes);
void take_sample(Bytes result, std::byte* sample);

// Up to 8 bytes, as a word: the first byte is the lowest.
inline constexpr uint64_t kWordBytes = 8;
uint64_t word_of(const void* bytes, uint64_t count);

// A result that has been computed again, with what was kept of it the first time and of the replay
// before this one. `digest`: of `now`. What it is this time is written down for the next replay.
// None: it is equal.
std::optional<Difference> compare_result(ring::JournalRecord& record, Bytes now,
                                         const ring::Digest& digest);

// Likewise in an audit, against what the rank's last execution gave. What the program was told may
// be of an earlier server, and another rank's silent fault, since corrected, in it. Writes nothing.
std::optional<Difference> compare_last(ring::JournalRecord& record, Bytes now,
                                       const ring::Digest& digest);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_REPLAY_DIVERGENCE_H_
