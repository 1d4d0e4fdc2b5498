// Requests for faults that wait for a launch, and what is said of those that never came to pass.
#ifndef SOFTGPU_FAULT_MISSED_FAULTS_H_
#define SOFTGPU_FAULT_MISSED_FAULTS_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "fault/fault_request.h"

namespace softgpu {

struct Armed {
  FaultRequest request;
  uint64_t number = 0;  // among all requests
  uint64_t due = 1;     // in the count of the launches it looks at
  uint64_t past = 0;    // of these: before it was asked for
  uint64_t seen = 0;    // launches that it was about
  uint64_t left = 1;    // times it still happens
  uint64_t times = 0;   // it has happened
  bool busy = false;    // a launch is running that may be the one
  std::string why;      // the last launch that could have been the one was not
};

void note_fault(unsigned char* notes, const FaultRequest& request);
// The same in the file of SOFTGPU_FAULT_NOTES, for requests without a note.
void write_fault(const FaultRequest& request);

// A line that says why it did not happen, empty if it did. `now`: launches that it counts so far.
std::string missed(const Armed& armed, uint64_t now);
std::string missed_from_start(const Armed& armed);

}  // namespace softgpu

#endif  // SOFTGPU_FAULT_MISSED_FAULTS_H_
