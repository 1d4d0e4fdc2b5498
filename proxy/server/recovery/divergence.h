// What it means that a replay computes something else than the program has been told (docs/
// recovery.md, "When a replay differs").
#ifndef PYFT_SERVER_RECOVERY_DIVERGENCE_H_
#define PYFT_SERVER_RECOVERY_DIVERGENCE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "ring/store_layout.h"

namespace pyft::server {

// What is done about a value that is another one in an entry by entry replay as well.
enum class DivergencePolicy {
  kStrict,  // the replay ends
  kReport,  // it is counted, unless the program may have decided something by it
};
// PYFT_DIVERGENCE, which the agent sets.
DivergencePolicy divergence_policy();

// One value that differs.
struct Difference {
  uint64_t seq = 0;      // entry that handed it out
  uint16_t call = 0;     // of the entry; 0: it is this entry or one before it
  std::string what;      // both values
  bool decides = false;  // the program may have taken a decision that is wrong now
  bool is_code = false;  // of a call
};

// Up to 8 bytes, as a word: the first byte is the lowest.
inline constexpr uint64_t kWordBytes = 8;
uint64_t word_of(const void* bytes, uint64_t count);

// Whether a program may decide otherwise by `now` than by `before`, `bytes` of each. It may unless
// they are numbers close to each other: with at least half of the significant bits of fp16, bf16,
// fp32 or fp64 in common, one number or as many as fit. What looks like an integer is taken for a
// count, which is never close to another one.
bool contradicts(uint64_t before, uint64_t now, uint64_t bytes);

// Both values, or their digests where they are longer than a word.
std::string difference_text(const ring::JournalRecord& before, uint64_t now);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_DIVERGENCE_H_
