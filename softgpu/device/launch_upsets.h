// The upsets and stuck bits that one launch has, and copies that are wrong.
#ifndef SOFTGPU_DEVICE_LAUNCH_UPSETS_H_
#define SOFTGPU_DEVICE_LAUNCH_UPSETS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/kernel.h"
#include "core/placement.h"
#include "core/upset.h"
#include "fault/bit_flip.h"
#include "fault/missed_faults.h"

namespace softgpu {

// The launch computes wrongly, rather than fails.
constexpr bool computes_wrong(RequestKind kind) {
  return kind == RequestKind::kUpset || kind == RequestKind::kStuck;
}

class LaunchUpsets {
 public:
  void add(const Armed& armed, const Sms& sms);
  Fault run(const std::function<Fault()>& launch);

  size_t size() const { return upsets_.size(); }
  const Upset& at(size_t i) const { return upsets_[i]; }
  uint64_t number(size_t i) const { return numbers_[i]; }  // of its request

 private:
  Upsets upsets_;
  std::vector<uint64_t> numbers_;
};

// Whether a request is about this copy: it names no device, or one that reads or writes it.
bool copies_for(const FaultRequest& request, uint64_t to, uint64_t from);
std::string copied_in_words(const CopiedRows& copied, uint64_t from, uint64_t number);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_LAUNCH_UPSETS_H_
