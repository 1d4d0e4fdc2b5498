#include "device/fault_injection.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "core/log.h"
#include "core/settings.h"
#include "device/armed_faults.h"
#include "device/device.h"
#include "fault/bit_flip.h"
#include "fault/fault_request.h"
#include "fault/missed_faults.h"

namespace softgpu {
namespace {

// Never destroyed: threads of the library may outlive static objects.
struct Faults {
  ArmedFaults armed;
  std::vector<Armed> from_start;  // of SOFTGPU_FAULT, before the first launch
  std::array<std::atomic<int>, kMaxDevices> hanging{};
  std::mutex mutex;
  std::condition_variable stop;
  bool stopping = false;
};

void read_environment(Faults& all) {
  std::vector<FaultRequest> asked;
  if (std::string problem = parse_faults(settings::fault(), &asked); !problem.empty()) {
    log_line(SOFTGPU_LOG_WARNING, "[SOFTGPU_FAULT]: %s; no fault will happen", problem.c_str());
  }
  for (const FaultRequest& r : asked) {
    if (is_immediate(r) && fault_of(r)) {
      all.from_start.emplace_back().request = r;
    } else {
      all.armed.arm(r);
    }
  }
}

Faults& faults() {
  static Faults* all = [] {
    auto made = std::make_unique<Faults>();
    read_environment(*made);
    return made.release();
  }();
  return *all;
}

std::string at_launch(const LaunchView& launch) {
  return " at launch [" + std::to_string(launch.own) + "], of [" + std::string(launch.kernel) + "]";
}

void say(int device, const std::string& sentence) {
  log_line(SOFTGPU_LOG_WARNING, "device [%d]: %s", device, sentence.c_str());
}

// Returns early when the process exits.
void hold_up(Faults& all, double seconds) {
  std::unique_lock lock(all.mutex);
  all.stop.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return all.stopping; });
}

// The launch has run: flips what it has written, or leaves that to another one.
void flip_results(Faults& all, const LaunchView& launch, const Decision& decision,
                  std::span<const WrittenBlock> said, const Fault& fault) {
  for (const auto& [number, flip] : decision.result_flips) {
    const FlipOutcome outcome =
        fault ? FlipOutcome{false, "the launch has failed"} : flip.flip(said);
    if (all.armed.ended(number, outcome.done, outcome.sentence)) {
      say(launch.device, outcome.sentence + at_launch(launch));
    }
  }
}

// The same of what the launch has computed; a second execution has shown nothing new.
void end_upsets(Faults& all, const LaunchView& launch, const LaunchUpsets& upsets) {
  if (launch.placement.again) return;
  for (size_t i = 0; i < upsets.size(); ++i) {
    const Upset& upset = upsets.at(i);
    if (all.armed.ended(upsets.number(i), upset.done, upset.sentence)) {
      say(launch.device, upset.sentence + at_launch(launch));
    }
  }
}

Fault run_decided(Faults& all, const LaunchView& launch, Decision& decision,
                  const std::function<Fault()>& run) {
  for (const auto& [flip, times] : decision.flips) {
    say(launch.device, flip_memory(launch.device, flip, times).sentence + at_launch(launch));
  }
  const WrittenBlocks said(!decision.result_flips.empty());
  const uint64_t begin = host_time_ns();
  Fault fault = decision.upsets.run(run);
  const double own = static_cast<double>(host_time_ns() - begin) * 1e-9;
  const double longer = std::max(decision.factor - 1, 0.0) * own;
  const double wait = longer + static_cast<double>(decision.delay_us) * 1e-6;
  if (wait > 0) hold_up(all, wait);
  flip_results(all, launch, decision, said.all(), fault);
  end_upsets(all, launch, decision.upsets);
  return fault;
}

template <class Body>
void for_devices(const FaultRequest& r, Body body) {
  for (int i = 0; i < device_count(); ++i) {
    if (!r.device || *r.device == i) body(i);
  }
}

void resume(Faults& all, const FaultRequest& r) {
  for_devices(r, [&](int i) {
    if (const auto hold = all.armed.take_hold(i)) Scheduler::complete(*hold);
  });
}

// Why the request cannot be taken; empty if it can.
std::string refusal(const Faults& all, const FaultRequest& r) {
  if (r.device && *r.device >= device_count()) {
    return "the fault [" + r.text + "] is for a device that is not there";
  }
  return all.armed.refusal(r);
}

void note_now(Faults& all, const FaultRequest& r) {
  all.armed.note(r);
  write_fault(r);
}

void happen_now(Faults& all, const FaultRequest& r) {
  if (r.kind == RequestKind::kResume) return resume(all, r);
  if (r.kind == RequestKind::kClear) {
    all.armed.clear(r.device);
    return resume(all, r);
  }
  if (r.kind == RequestKind::kFlip) {
    const int owner = r.device.value_or(0);
    const FlipOutcome outcome = flip_memory(owner, r, 0);
    if (outcome.done) note_now(all, r);
    return say(owner, outcome.sentence);
  }
  note_now(all, r);
  for_devices(r, [&](int i) { device(i).scheduler().fail_now(fault_of(r)); });
}

thread_local Placement placement_here;

}  // namespace

void set_placement(const Placement& placement) {
  placement_here = placement;
}

LaunchTicket new_ticket() {
  LaunchTicket ticket;
  ticket.placement = placement_here;
  return ticket;
}

Fault run_launch(int device, std::string_view kernel, std::span<const uint8_t> params,
                 LaunchTicket* ticket, const std::function<Fault()>& run) {
  Faults& all = faults();
  if (ticket->passed) {
    --all.hanging[static_cast<size_t>(device)];
    return run();
  }
  ticket->passed = true;
  const LaunchView launch = all.armed.begin(device, kernel, params, ticket->placement);
  if (!all.armed.any()) return run();
  Decision decision = all.armed.decide(launch);
  if (decision.fault) {
    decision.fault.message += at_launch(launch);
    all.armed.release(decision);
    return std::move(decision.fault);
  }
  if (!decision.fault.until) return run_decided(all, launch, decision, run);
  all.armed.release(decision);
  ++all.hanging[static_cast<size_t>(device)];
  say(device, "the kernel hangs" + at_launch(launch));
  return std::move(decision.fault);
}

void copy_made(const CopiedRows& copied, uint64_t from) {
  faults().armed.copied(
      copied.address, from, [&](const FaultRequest& r, uint64_t times, uint64_t number) {
        FlipOutcome outcome = flip_copied(copied, r, times);
        if (outcome.done) {
          say(r.device.value_or(0), outcome.sentence + copied_in_words(copied, from, number));
        }
        return outcome;
      });
}

uint64_t launches(int device) {
  return faults().armed.launches(device);
}

int hanging(int device) {
  return faults().hanging[static_cast<size_t>(device)].load();
}

std::string inject_faults(std::string_view text) {
  std::vector<FaultRequest> asked;
  if (std::string problem = parse_faults(text, &asked); !problem.empty()) return problem;
  Faults& all = faults();
  for (const FaultRequest& r : asked) {
    if (std::string problem = refusal(all, r); !problem.empty()) return problem;
  }
  for (const FaultRequest& r : asked) {
    if (is_immediate(r)) {
      happen_now(all, r);
    } else {
      all.armed.arm(r);
    }
  }
  return "";
}

Fault fault_from_start(int device) {
  for (Armed& armed : faults().from_start) {
    if (armed.request.device.value_or(device) != device) continue;
    if (!armed.times++) write_fault(armed.request);
    return fault_of(armed.request);
  }
  return {};
}

void note_faults(unsigned char* notes) {
  faults().armed.set_notes(notes);
}

std::string missed_faults() {
  const Faults& all = faults();
  std::string text;
  for (const Armed& armed : all.from_start) text += missed_from_start(armed);
  return text + all.armed.missed();
}

void stop_faults() {
  Faults& all = faults();
  const std::scoped_lock lock(all.mutex);
  all.stopping = true;
  all.stop.notify_all();
}

}  // namespace softgpu
