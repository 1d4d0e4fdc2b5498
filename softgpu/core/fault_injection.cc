#include "core/fault_injection.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "core/bit_flip.h"
#include "core/config.h"
#include "core/device.h"
#include "core/fault_request.h"
#include "core/missed_faults.h"

namespace softgpu {
namespace {

// What is decided for one launch.
struct Decision {
  Fault fault;
  bool hang = false;
  double factor = 0;
  uint64_t delay_us = 0;
  std::vector<FaultRequest> flips;  // of memory, before it runs
  // Of what it writes; the requests that ask for it, which are kept back from other launches.
  std::vector<std::pair<Armed*, ResultFlip>> result_flips;
};

// Never destroyed: threads of the library may outlive static objects.
struct Requests {
  std::atomic<bool> any{false};  // looked at by every launch; the rest only if it is set
  std::atomic<uint64_t> total{0};
  std::array<std::atomic<uint64_t>, kMaxDevices> counts{};
  std::mutex mutex;
  std::list<Armed> armed;
  std::vector<Armed> from_start;  // of SOFTGPU_FAULT, before the first launch
  std::atomic<unsigned char*> notes{nullptr};
  std::array<std::shared_ptr<EventState>, kMaxDevices> hold;  // ends the hangs of a device
  std::array<std::atomic<int>, kMaxDevices> hanging{};
  std::condition_variable stop;
  bool stopping = false;
};

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

Fault fault_of(const FaultRequest& request) {
  const FaultKind kind = kind_of(request);
  std::string what = "error [" + std::to_string(fault_code(kind)) + "]";
  if (kind == FaultKind::kDeviceLost) what = "the GPU has fallen off the bus";
  if (kind == FaultKind::kEccUncontained) what = "an uncontained memory error";
  if (kind == FaultKind::kEccContained) what = "a contained memory error";
  return {kind, what + ", as [" + request.text + "] asks for", nullptr};
}

bool flips_result(const FaultRequest& r) {
  return r.target == FlipTarget::kArgument || r.target == FlipTarget::kChanged ||
         r.target == FlipTarget::kAny;
}

// What it does it does without a launch.
bool immediate(const FaultRequest& r) {
  return !r.at && !r.in && r.kernel.empty() && r.kind != RequestKind::kHang &&
         r.kind != RequestKind::kSlow && !flips_result(r);
}

// Launches that have begun, of those that the request counts.
uint64_t past_of(const Requests& all, const FaultRequest& r) {
  if (!r.kernel.empty()) return 0;
  return r.device ? all.counts[static_cast<size_t>(*r.device)] : all.total;
}

// Why the request cannot be taken; empty if it can.
std::string refusal(const Requests& all, const FaultRequest& r) {
  if (r.device && *r.device >= device_count()) {
    return "the fault [" + r.text + "] is for a device that is not there";
  }
  const uint64_t past = past_of(all, r);
  if (!r.at || *r.at > past) return "";
  return "the fault [" + r.text + "] comes too late, after launch [" + std::to_string(past) + "]";
}

// Precondition: the mutex is held.
void arm(Requests& all, const FaultRequest& r) {
  Armed armed;
  armed.request = r;
  armed.past = past_of(all, r);
  armed.due = r.at ? *r.at : armed.past + r.in.value_or(1);
  const bool repeats = r.every || r.kind == RequestKind::kSlow;
  armed.left = r.times.value_or(repeats ? UINT64_MAX : 1);
  all.armed.push_back(std::move(armed));
  all.any.store(true, std::memory_order_relaxed);
}

void read_environment(Requests& all) {
  const char* text = std::getenv("SOFTGPU_FAULT");
  std::vector<FaultRequest> asked;
  if (std::string problem = parse_faults(text ? text : "", &asked); !problem.empty()) {
    std::fprintf(stderr, "softgpu: [SOFTGPU_FAULT]: %s; no fault will happen\n", problem.c_str());
  }
  for (const FaultRequest& r : asked) {
    if (immediate(r) && kind_of(r) != FaultKind::kNone) {
      all.from_start.emplace_back().request = r;
    } else {
      arm(all, r);
    }
  }
}

Requests& requests() {
  static Requests* all = [] {
    auto made = std::make_unique<Requests>();
    read_environment(*made);
    return made.release();
  }();
  return *all;
}

struct LaunchView {
  int device;
  std::string_view kernel;
  std::span<const uint8_t> params;
  uint64_t own, total;  // its numbers
};

// Whether this launch is one the request is about and its turn has come.
bool due(Armed& armed, const LaunchView& launch) {
  const FaultRequest& r = armed.request;
  if (r.device && *r.device != launch.device) return false;
  if (!r.kernel.empty() && launch.kernel.find(r.kernel) == launch.kernel.npos) return false;
  ++armed.seen;
  if (armed.busy) return false;
  if (!r.kernel.empty()) return armed.seen >= armed.due;
  return (r.device ? launch.own : launch.total) >= armed.due;
}

// Precondition: the mutex is held.
void happened(Requests& all, Armed& armed) {
  note_fault(all.notes, armed.request);
  ++armed.times;
  armed.due += armed.request.every.value_or(1);
  --armed.left;
}

// False if only the end of the launch shows whether it can do what is asked for.
bool decide(Armed& armed, const LaunchView& launch, Decision* decision) {
  const FaultRequest& r = armed.request;
  switch (r.kind) {
    case RequestKind::kHang:
      decision->hang = true;
      return true;
    case RequestKind::kSlow:
      decision->factor = std::max(decision->factor, r.factor);
      decision->delay_us += r.delay_us;
      return true;
    case RequestKind::kFlip:
      if (!flips_result(r)) {
        decision->flips.push_back(r);
        return true;
      }
      armed.busy = true;
      decision->result_flips.emplace_back(&armed, ResultFlip(launch.params, r, armed.times));
      return false;
    default:
      if (!decision->fault) decision->fault = fault_of(r);
      return true;
  }
}

Decision decide_all(Requests& all, const LaunchView& launch) {
  Decision decision;
  const std::scoped_lock lock(all.mutex);
  for (auto it = all.armed.begin(); it != all.armed.end();) {
    Armed& armed = *it;
    if (due(armed, launch) && decide(armed, launch, &decision)) happened(all, armed);
    it = armed.left || armed.busy ? std::next(it) : all.armed.erase(it);
  }
  if (decision.hang && !decision.fault) {
    auto& hold = all.hold[static_cast<size_t>(launch.device)];
    if (!hold) hold = std::make_shared<EventState>();
    decision.fault.until = hold;
  }
  all.any.store(!all.armed.empty(), std::memory_order_relaxed);
  return decision;
}

std::string at_launch(const LaunchView& launch) {
  return " at launch [" + std::to_string(launch.own) + "], of [" + std::string(launch.kernel) + "]";
}

void say(int device, const std::string& sentence) {
  std::fprintf(stderr, "softgpu: device [%d]: %s\n", device, sentence.c_str());
}

// Returns early when the process exits.
void hold_up(Requests& all, double seconds) {
  std::unique_lock lock(all.mutex);
  all.stop.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return all.stopping; });
}

// The launch has run: flips what it has written, or leaves that to another one.
void flip_results(Requests& all, const LaunchView& launch, const Decision& decision,
                  std::span<const WrittenBlock> said, const Fault& fault) {
  for (const auto& [armed, flip] : decision.result_flips) {
    const FlipOutcome outcome =
        fault ? FlipOutcome{false, "the launch has failed"} : flip.flip(said);
    if (outcome.done) say(launch.device, outcome.sentence + at_launch(launch));
    const std::scoped_lock lock(all.mutex);
    armed->busy = false;
    armed->why = outcome.sentence;
    if (outcome.done && armed->left) happened(all, *armed);  // or it was cleared meanwhile
    if (!armed->left) all.armed.remove_if([one = armed](const Armed& a) { return &a == one; });
    all.any.store(!all.armed.empty(), std::memory_order_relaxed);
  }
}

// The launch does not run: what was kept for its end waits for another one.
void release(Requests& all, const Decision& decision) {
  const std::scoped_lock lock(all.mutex);
  for (const auto& [armed, flip] : decision.result_flips) armed->busy = false;
}

Fault run_decided(Requests& all, const LaunchView& launch, const Decision& decision,
                  const std::function<Fault()>& run) {
  for (const FaultRequest& flip : decision.flips) {
    say(launch.device, flip_memory(launch.device, flip).sentence + at_launch(launch));
  }
  const WrittenBlocks said(!decision.result_flips.empty());
  const uint64_t begin = host_time_ns();
  Fault fault = run();
  const double own = static_cast<double>(host_time_ns() - begin) * 1e-9;
  const double longer = std::max(decision.factor - 1, 0.0) * own;
  const double wait = longer + static_cast<double>(decision.delay_us) * 1e-6;
  if (wait > 0) hold_up(all, wait);
  flip_results(all, launch, decision, said.all(), fault);
  return fault;
}

template <class Body>
void for_devices(const FaultRequest& r, Body body) {
  for (int i = 0; i < device_count(); ++i) {
    if (!r.device || *r.device == i) body(i);
  }
}

void resume(Requests& all, const FaultRequest& r) {
  for_devices(r, [&](int i) {
    std::shared_ptr<EventState> hold;
    {
      const std::scoped_lock lock(all.mutex);
      hold = std::move(all.hold[static_cast<size_t>(i)]);
    }
    if (hold) Scheduler::complete(*hold);
  });
}

void clear(Requests& all, const FaultRequest& r) {
  {
    const std::scoped_lock lock(all.mutex);
    // A request without a device stays when only one device is cleared.
    for (Armed& a : all.armed) {
      if (!r.device || a.request.device == r.device) a.left = 0;
    }
    all.armed.remove_if([](const Armed& a) { return !a.left && !a.busy; });
    all.any.store(!all.armed.empty(), std::memory_order_relaxed);
  }
  resume(all, r);
}

void happen_now(Requests& all, const FaultRequest& r) {
  if (r.kind == RequestKind::kResume) return resume(all, r);
  if (r.kind == RequestKind::kClear) return clear(all, r);
  if (r.kind == RequestKind::kFlip) {
    const int owner = r.device.value_or(0);
    const FlipOutcome outcome = flip_memory(owner, r);
    if (outcome.done) note_fault(all.notes, r);
    return say(owner, outcome.sentence);
  }
  note_fault(all.notes, r);
  for_devices(r, [&](int i) { device(i).scheduler().fail_now(fault_of(r)); });
}

}  // namespace

Fault run_launch(int device, std::string_view kernel, std::span<const uint8_t> params,
                 LaunchTicket* ticket, const std::function<Fault()>& run) {
  Requests& all = requests();
  if (ticket->passed) {
    --all.hanging[static_cast<size_t>(device)];
    return run();
  }
  ticket->passed = true;
  const uint64_t own = ++all.counts[static_cast<size_t>(device)], total = ++all.total;
  if (!all.any.load(std::memory_order_relaxed)) return run();
  const LaunchView launch{device, kernel, params, own, total};
  Decision decision = decide_all(all, launch);
  if (decision.fault) {
    decision.fault.message += at_launch(launch);
    release(all, decision);
    return std::move(decision.fault);
  }
  if (!decision.fault.until) return run_decided(all, launch, decision, run);
  release(all, decision);
  ++all.hanging[static_cast<size_t>(device)];
  say(device, "the kernel hangs" + at_launch(launch));
  return std::move(decision.fault);
}

uint64_t launches(int device) {
  return requests().counts[static_cast<size_t>(device)].load();
}

int hanging(int device) {
  return requests().hanging[static_cast<size_t>(device)].load();
}

std::string inject_faults(std::string_view text) {
  std::vector<FaultRequest> asked;
  if (std::string problem = parse_faults(text, &asked); !problem.empty()) return problem;
  Requests& all = requests();
  for (const FaultRequest& r : asked) {
    if (std::string problem = refusal(all, r); !problem.empty()) return problem;
  }
  for (const FaultRequest& r : asked) {
    if (immediate(r)) {
      happen_now(all, r);
    } else {
      const std::scoped_lock lock(all.mutex);
      arm(all, r);
    }
  }
  return "";
}

Fault fault_from_start(int device) {
  for (Armed& armed : requests().from_start) {
    if (armed.request.device.value_or(device) != device) continue;
    ++armed.times;
    return fault_of(armed.request);
  }
  return {};
}

void note_faults(unsigned char* notes) {
  requests().notes = notes;
}

std::string missed_faults() {
  Requests& all = requests();
  const std::scoped_lock lock(all.mutex);
  std::string text;
  for (const Armed& armed : all.from_start) text += missed_from_start(armed);
  for (const Armed& armed : all.armed) text += missed(armed, past_of(all, armed.request));
  return text;
}

void stop_faults() {
  Requests& all = requests();
  const std::scoped_lock lock(all.mutex);
  all.stopping = true;
  all.stop.notify_all();
}

}  // namespace softgpu
