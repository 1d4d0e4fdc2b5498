// Wrong results on request: an upset, of one instruction or one product; a stuck bit of a unit.
//
// Contract between device/ (which decides which launch is hit) and exec/ and api/ (which hit it).
#ifndef SOFTGPU_CORE_UPSET_H_
#define SOFTGPU_CORE_UPSET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernel.h"

namespace softgpu {

// What becomes of the 32 bits of a register of one lane, or of a product's accumulator.
enum class UpsetModel : uint8_t {
  kSingle,  // one bit, drawn
  kDouble,  // two bits, drawn
  kByte,    // one byte is another one
  kWord,    // all bits are drawn
  kZero,    // they are zero
  kStale,   // what was there before stays there
  kMask,    // chosen bits
};

// Units of an SM, by the instructions that they execute.
enum class Unit : uint8_t { kAlu, kFma, kMufu, kLsu, kTensor };
inline constexpr std::string_view kUnitNames[] = {"alu", "fma", "mufu", "lsu", "tensor"};

struct UpsetAim {
  UpsetModel model = UpsetModel::kSingle;
  uint32_t mask = 0;  // kMask
  uint64_t seed = 0;
  // Of kernels: none is drawn.
  std::string op;               // only instructions with this mnemonic
  std::optional<uint64_t> nth;  // the n-th of the launch that can be hit, from 1
  std::optional<unsigned> lane, reg;
  // Of products: none is drawn.
  std::optional<uint64_t> row, column, after;  // after so many products of the sum

  // A stuck bit lasts: of one lane of a unit of an SM.
  bool stuck = false;
  unsigned sm = 0, bit = 0, to = 1;
  Unit unit = Unit::kFma;
};

// One of a launch, and what has become of it.
struct Upset {
  UpsetAim aim;
  uint64_t times = 0;  // how often the request has happened before; each time others are drawn
  Sms sms;             // that execute the launch
  bool done = false;
  std::string sentence;  // what was hit, where, old and new bits; or why nothing was
};
using Upsets = std::vector<Upset>;

// While one lives, launches that the thread executes have these upsets.
class SOFTGPU_OF_EXECUTOR UpsetsHere {
 public:
  explicit UpsetsHere(Upsets* upsets);
  ~UpsetsHere();
  UpsetsHere(const UpsetsHere&) = delete;
  UpsetsHere& operator=(const UpsetsHere&) = delete;
  static Upsets* current();  // null: none

 private:
  Upsets* before_;
};

// A number below `bound`, the same for the same seed; `what` tells the draws of one upset apart.
SOFTGPU_OF_EXECUTOR uint64_t draw(const Upset& upset, uint64_t what, uint64_t bound);
// The 32 bits `right` as the upset has them; `old`: what was there before.
SOFTGPU_OF_EXECUTOR uint32_t upset_bits(const Upset& upset, uint32_t old, uint32_t right);

}  // namespace softgpu

#endif  // SOFTGPU_CORE_UPSET_H_
