// What a fault on request looks like in words. README.md ("Faults on request") has the language for
// users; here is what one line of it means.
#ifndef SOFTGPU_FAULT_FAULT_REQUEST_H_
#define SOFTGPU_FAULT_FAULT_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/upset.h"

namespace softgpu {

enum class RequestKind : uint8_t {
  kError,      // the device's context ends with `code`
  kLost,       // the device falls off the bus
  kEcc,        // an uncontained memory error: the device needs a reset
  kContained,  // a contained one: a new process can use the device
  kHang,       // the launch does not end
  kSlow,       // the launch takes longer
  kFlip,       // one bit of device memory changes
  kUpset,      // an instruction or a product computes something else, once
  kStuck,      // a bit of a unit of an SM is stuck
  kCopy,       // a copy copies one bit wrong
  kResume,     // ends hangs
  kClear,      // forgets the requests that are left, and ends hangs
};

// How many requests can be noted (softgpu_note_faults).
inline constexpr unsigned kNotes = 256;

enum class FlipTarget : uint8_t { kNone, kAddress, kAllocation, kArgument, kChanged, kAny, kLive };

struct FaultRequest {
  RequestKind kind = RequestKind::kError;
  std::string text;  // as it was written

  // When. Without at, in and kernel: at once.
  std::optional<int> device;  // none: any, or all
  std::optional<uint64_t>
      at;  // launch number since the start, from 1; kCopy: of copies it is about
  std::optional<uint64_t> in;  // number of launches from now, 1: the next
  std::string kernel;          // only launches with this in their name count
  std::optional<uint64_t> every, times;

  int code = 0;       // kError
  double factor = 0;  // kSlow: of the launch's own time; 0: none
  uint64_t delay_us = 0;

  FlipTarget target = FlipTarget::kNone;  // kFlip
  uint64_t address = 0;                   // kAddress
  uint64_t number = 1;  // kAllocation: the n-th allocation; kArgument: the n-th pointer argument
  std::optional<uint64_t> size;  // kAllocation: only allocations of that many bytes count
  uint64_t byte = 0;
  bool drawn_byte = false;      // kCopy
  std::optional<unsigned> bit;  // none: 0, or drawn
  uint64_t seed = 0;            // of what is drawn

  UpsetAim upset;  // kUpset, kStuck

  std::optional<unsigned> note;  // where it is noted that it has come to pass
};

// Reads requests separated by semicolons or line ends; what follows a # is left out. Returns one
// sentence if something is wrong, and then `requests` holds none.
std::string parse_faults(std::string_view text, std::vector<FaultRequest>* requests);

}  // namespace softgpu

#endif  // SOFTGPU_FAULT_FAULT_REQUEST_H_
