// Faults that have been asked for and wait for the launch, or the copy, that is to have them: which
// one gets which. What is done to it then is fault_injection.h's business. Thread-safe.
#ifndef SOFTGPU_DEVICE_ARMED_FAULTS_H_
#define SOFTGPU_DEVICE_ARMED_FAULTS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/placement.h"
#include "device/launch_upsets.h"
#include "fault/bit_flip.h"
#include "fault/missed_faults.h"
#include "stream/stream.h"

namespace softgpu {

struct LaunchView {
  int device;
  std::string_view kernel;
  std::span<const uint8_t> params;
  uint64_t own, total;  // its numbers
  Placement placement;
};

// What is decided for one launch.
struct Decision {
  Fault fault;
  double factor = 0;
  uint64_t delay_us = 0;
  std::vector<std::pair<FaultRequest, uint64_t>> flips;  // of memory, before it runs
  // Of what it writes, by the number of the request that asks for it. The request is kept back from
  // other launches.
  std::vector<std::pair<uint64_t, ResultFlip>> result_flips;
  LaunchUpsets upsets;  // likewise; a stuck bit is not kept back
};

Fault fault_of(const FaultRequest& request);
// What it does it does without a launch.
bool is_immediate(const FaultRequest& request);

class ArmedFaults {
 public:
  // Counts a launch that begins, unless it is a second execution.
  LaunchView begin(int device, std::string_view kernel, std::span<const uint8_t> params,
                   const Placement& placement);
  uint64_t launches(int device) const { return counts_[static_cast<size_t>(device)].load(); }
  // Looked at by every launch and copy; the rest only if there are some.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Why the request cannot be taken; empty if it can.
  std::string refusal(const FaultRequest& request) const;
  void arm(const FaultRequest& request);
  // Forgets those of a device, or all. What a launch is having at this moment it still gets.
  void clear(std::optional<int> device);
  // Ends the hangs of a device so far.
  std::shared_ptr<EventState> take_hold(int device);

  Decision decide(const LaunchView& launch);
  // The launch does not run: what was kept for its end waits for another one.
  void release(const Decision& decision);
  // What was kept for the end of a launch has been done to it, or why not. True: for the first
  // time, if it is a stuck bit.
  bool ended(uint64_t number, bool done, const std::string& why);
  // Those that are about this copy: `wrong(request, times, number of the copy)` makes it wrong.
  template <class Wrong>
  void copied(uint64_t to, uint64_t from, Wrong wrong);

  // Where it is noted from now on which have come to pass; `note` does it.
  void set_notes(unsigned char* notes) { notes_ = notes; }
  void note(const FaultRequest& request) { note_fault(notes_, request); }
  // A line for each that has not, with the reason.
  std::string missed() const;

 private:
  using Place = std::list<Armed>::iterator;
  uint64_t past_of(const FaultRequest& request) const;
  void happened(Armed& armed);
  void give_back(Place armed);
  void note_any() { any_.store(!armed_.empty(), std::memory_order_relaxed); }

  std::atomic<bool> any_{false};
  std::atomic<uint64_t> total_{0};
  std::array<std::atomic<uint64_t>, kMaxDevices> counts_{};
  std::atomic<unsigned char*> notes_{nullptr};
  mutable std::mutex mutex_;  // guards what follows
  uint64_t numbered_ = 0;     // requests so far
  std::list<Armed> armed_;
  std::array<std::shared_ptr<EventState>, kMaxDevices> hold_;  // ends the hangs of a device
};

template <class Wrong>
void ArmedFaults::copied(uint64_t to, uint64_t from, Wrong wrong) {
  if (!any()) return;
  const std::scoped_lock lock(mutex_);
  for (auto it = armed_.begin(); it != armed_.end();) {
    const Place armed = it++;
    const FaultRequest& request = armed->request;
    if (request.kind != RequestKind::kCopy || !copies_for(request, to, from)) continue;
    if (++armed->seen < armed->due) continue;
    const FlipOutcome outcome = wrong(request, armed->times, armed->seen);
    armed->why = outcome.sentence;
    if (!outcome.done) continue;
    happened(*armed);
    if (!armed->left) armed_.erase(armed);
  }
  note_any();
}

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_ARMED_FAULTS_H_
