// What bytes that a program has been told look like, and how far they are from others: of a copy
// nothing says whether it holds numbers, counts or flags.
#ifndef PYFT_CHECKPOINT_REPLAY_NUMBERS_H_
#define PYFT_CHECKPOINT_REPLAY_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace pyft::checkpoint {

// How far a value is from what it was.
enum class Weight {
  kLastDigits,  // numbers that are close to each other, as sums in another order are
  kUnknown,     // all that is known are digests, and the program has not seen it
  kUnseen,      // numbers, by a sample in which nothing differs
  kFar,         // numbers that are not close
  kDecides,     // counts, flags, codes: the program may have taken a decision that is wrong now
};

using Bytes = std::span<const std::byte>;

// Both have the same size. Numbers are close if at least half of their significant bits as fp16,
// bf16, fp32 or fp64 are the same; of several, also if they differ by as little of the largest one,
// since a sum that nearly vanishes has fewer right digits. What looks like whole numbers is taken
// for counts, which are never close: integers, and floating-point numbers without a fraction that
// could have one. `kLastDigits` also if they are equal.
Weight account(Bytes before, Bytes now);

// Whether these bytes would be integers: as floating-point numbers all would be zero or next to it.
bool look_like_counts(Bytes bytes);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_REPLAY_NUMBERS_H_
