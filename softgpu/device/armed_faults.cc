#include "device/armed_faults.h"

#include <algorithm>

#include "fault/fault_kinds.h"

namespace softgpu {
namespace {

FaultKind kind_of(const FaultRequest& request) {
  switch (request.kind) {
    case RequestKind::kError:
      return code_fault(request.code);
    case RequestKind::kLost:
      return FaultKind::kDeviceLost;
    case RequestKind::kEcc:
      return FaultKind::kEccUncontained;
    case RequestKind::kContained:
      return FaultKind::kEccContained;
    default:
      return FaultKind::kNone;
  }
}

bool flips_result(const FaultRequest& r) {
  return r.target == FlipTarget::kArgument || r.target == FlipTarget::kChanged ||
         r.target == FlipTarget::kAny;
}

// Whether this launch is one the request is about and its turn has come.
bool due(Armed& armed, const LaunchView& launch) {
  const FaultRequest& r = armed.request;
  if (r.kind == RequestKind::kCopy) return false;
  if (r.device && *r.device != launch.device) return false;
  if (!r.kernel.empty() && launch.kernel.find(r.kernel) == launch.kernel.npos) return false;
  if (launch.placement.again && r.kind != RequestKind::kStuck) return false;
  if (!launch.placement.again) ++armed.seen;
  if (armed.busy) return false;
  if (launch.placement.again && armed.times) return true;  // it lasts
  if (!r.kernel.empty()) return armed.seen >= armed.due;
  return (r.device ? launch.own : launch.total) >= armed.due;
}

// False if only the end of the launch shows whether it can do what is asked for.
bool add(Armed& armed, const LaunchView& launch, Decision* decision, bool* hangs) {
  const FaultRequest& r = armed.request;
  switch (r.kind) {
    case RequestKind::kHang:
      *hangs = true;
      return true;
    case RequestKind::kSlow:
      decision->factor = std::max(decision->factor, r.factor);
      decision->delay_us += r.delay_us;
      return true;
    case RequestKind::kFlip:
      if (!flips_result(r)) {
        decision->flips.emplace_back(r, armed.times);
        return true;
      }
      armed.busy = true;
      decision->result_flips.emplace_back(armed.number, ResultFlip(launch.params, r, armed.times));
      return false;
    case RequestKind::kUpset:
      armed.busy = true;
      decision->upsets.add(armed, sms_for(launch.placement));
      return false;
    case RequestKind::kStuck:
      decision->upsets.add(armed, sms_for(launch.placement));
      return false;
    default:
      if (!decision->fault) decision->fault = fault_of(r);
      return true;
  }
}

}  // namespace

Fault fault_of(const FaultRequest& request) {
  const FaultKind kind = kind_of(request);
  std::string what = "error [" + std::to_string(fault_code(kind)) + "]";
  if (kind == FaultKind::kDeviceLost) what = "the GPU has fallen off the bus";
  if (kind == FaultKind::kEccUncontained) what = "an uncontained memory error";
  if (kind == FaultKind::kEccContained) what = "a contained memory error";
  return {kind, what + ", as [" + request.text + "] asks for", nullptr};
}

bool is_immediate(const FaultRequest& r) {
  return !r.at && !r.in && r.kernel.empty() && r.kind != RequestKind::kHang &&
         r.kind != RequestKind::kSlow && !computes_wrong(r.kind) && r.kind != RequestKind::kCopy &&
         !flips_result(r);
}

LaunchView ArmedFaults::begin(int device, std::string_view kernel, std::span<const uint8_t> params,
                              const Placement& placement) {
  const uint64_t one = placement.again ? 0 : 1;
  const uint64_t own = counts_[static_cast<size_t>(device)] += one;
  return {device, kernel, params, own, total_ += one, placement};
}

// Launches that have begun, of those that the request counts.
uint64_t ArmedFaults::past_of(const FaultRequest& r) const {
  if (!r.kernel.empty() || r.kind == RequestKind::kCopy) return 0;
  return r.device ? counts_[static_cast<size_t>(*r.device)] : total_;
}

std::string ArmedFaults::refusal(const FaultRequest& r) const {
  const uint64_t past = past_of(r);
  if (!r.at || *r.at > past) return "";
  return "the fault [" + r.text + "] comes too late, after launch [" + std::to_string(past) + "]";
}

void ArmedFaults::arm(const FaultRequest& r) {
  const std::scoped_lock lock(mutex_);
  Armed armed;
  armed.request = r;
  armed.past = past_of(r);
  armed.due = r.at ? *r.at : armed.past + r.in.value_or(1);
  const bool repeats = r.every || r.kind == RequestKind::kSlow || r.kind == RequestKind::kStuck;
  armed.number = ++numbered_;
  armed.left = r.times.value_or(repeats ? UINT64_MAX : 1);
  armed_.push_back(std::move(armed));
  note_any();
}

// A request without a device stays when only one device is cleared.
void ArmedFaults::clear(std::optional<int> device) {
  const std::scoped_lock lock(mutex_);
  for (Armed& armed : armed_)
    if (!device || armed.request.device == device) armed.left = 0;
  armed_.remove_if([](const Armed& armed) { return !armed.left && !armed.busy; });
  note_any();
}

std::shared_ptr<EventState> ArmedFaults::take_hold(int device) {
  const std::scoped_lock lock(mutex_);
  return std::move(hold_[static_cast<size_t>(device)]);
}

// The mutex is held, here and in give_back().
void ArmedFaults::happened(Armed& armed) {
  note(armed.request);
  if (!armed.times++) write_fault(armed.request);
  armed.due += armed.request.every.value_or(1);
  --armed.left;
}

// It may have been cleared while a launch had it.
void ArmedFaults::give_back(Place armed) {
  armed->busy = false;
  if (!armed->left) armed_.erase(armed);
  note_any();
}

Decision ArmedFaults::decide(const LaunchView& launch) {
  Decision decision;
  bool hangs = false;
  const std::scoped_lock lock(mutex_);
  for (auto it = armed_.begin(); it != armed_.end();) {
    Armed& armed = *it;
    if (due(armed, launch) && add(armed, launch, &decision, &hangs)) happened(armed);
    it = armed.left || armed.busy ? std::next(it) : armed_.erase(it);
  }
  if (hangs && !decision.fault) {
    auto& hold = hold_[static_cast<size_t>(launch.device)];
    if (!hold) hold = std::make_shared<EventState>();
    decision.fault.until = hold;
  }
  note_any();
  return decision;
}

void ArmedFaults::release(const Decision& decision) {
  std::vector<uint64_t> kept;
  for (const auto& [number, flip] : decision.result_flips) kept.push_back(number);
  for (size_t i = 0; i < decision.upsets.size(); ++i) kept.push_back(decision.upsets.number(i));
  const std::scoped_lock lock(mutex_);
  for (const uint64_t number : kept)
    if (const auto armed = std::ranges::find(armed_, number, &Armed::number); armed != armed_.end())
      give_back(armed);
}

bool ArmedFaults::ended(uint64_t number, bool done, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  const auto armed = std::ranges::find(armed_, number, &Armed::number);
  if (armed == armed_.end()) return false;
  const bool again = armed->request.kind == RequestKind::kStuck && armed->times;
  armed->why = why;
  if (done && !again && armed->left) happened(*armed);  // or it was cleared meanwhile
  give_back(armed);
  return done && !again;
}

std::string ArmedFaults::missed() const {
  const std::scoped_lock lock(mutex_);
  std::string text;
  for (const Armed& armed : armed_) text += softgpu::missed(armed, past_of(armed.request));
  return text;
}

}  // namespace softgpu
