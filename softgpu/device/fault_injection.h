// Faults on request: what was asked for, counting launches, and making them fail. A launch is a
// kernel launch or a call of the BLAS part.
//
// Requests come from SOFTGPU_FAULT (read before the first device is used), from the control file
// and from softgpu_inject(). Thread-safe.
#ifndef SOFTGPU_DEVICE_FAULT_INJECTION_H_
#define SOFTGPU_DEVICE_FAULT_INJECTION_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/kernel.h"
#include "core/placement.h"
#include "fault/bit_flip.h"
#include "fault/fault_kinds.h"

namespace softgpu {

// One execution of a launch. Lives as long as the work does: a launch that hangs is run again when
// it may go on, and is not counted a second time.
struct LaunchTicket {
  uint64_t number = 0;  // of this device, from 1
  bool passed = false;  // it has been decided what happens to it
  Placement placement;  // as the thread has it that puts it on a stream
};

// What the calling thread puts on streams from now on.
void set_placement(const Placement& placement);
LaunchTicket new_ticket();

// Counts the launch and runs it, or does to it what was asked for. `params` is searched for
// pointers. A Fault with `until` means: nothing has run, call again after that event.
Fault run_launch(int device, std::string_view kernel, std::span<const uint8_t> params,
                 LaunchTicket* ticket, const std::function<Fault()>& run);

// Counts a copy that has been made, and lets it be wrong if that was asked for.
void copy_made(const CopiedRows& copied, uint64_t from);

uint64_t launches(int device);
// Launches that hang at this moment.
int hanging(int device);

// Takes the requests in `text`, all or none; one sentence if something is wrong with them. What has
// no time happens before the call returns. Precondition: not called while work runs it.
std::string inject_faults(std::string_view text);

// The fault with which SOFTGPU_FAULT lets a device begin; called once per device, as it is made.
Fault fault_from_start(int device);

// Where it is noted from now on which requests have come to pass: 1 in the byte that `note=` names.
void note_faults(unsigned char* notes);
// A line for each request that has not come to pass, with the reason; empty if there is none.
std::string missed_faults();

// For process exit: launches that are held up go on.
void stop_faults();

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_FAULT_INJECTION_H_
