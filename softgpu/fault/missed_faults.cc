#include "fault/missed_faults.h"

namespace softgpu {
namespace {

std::string in_brackets(uint64_t n) {
  return "[" + std::to_string(n) + "]";
}

std::string line(const Armed& armed, const std::string& why) {
  return "softgpu: the fault [" + armed.request.text + "] did not happen: " + why + "\n";
}

// Which launches it was about.
std::string launches_of(const FaultRequest& r) {
  const std::string what = r.kind == RequestKind::kCopy ? "copies" : "launches";
  std::string words = r.kernel.empty() ? what : what + " of [" + r.kernel + "]";
  if (r.device) words += " on device " + in_brackets(static_cast<uint64_t>(*r.device));
  return words;
}

}  // namespace

void note_fault(unsigned char* notes, const FaultRequest& request) {
  if (!notes || !request.note) return;
  std::atomic_ref<unsigned char>(notes[*request.note]).store(1);
}

std::string missed(const Armed& armed, uint64_t now) {
  const FaultRequest& r = armed.request;
  if (armed.times && armed.times >= r.times.value_or(1)) return "";
  if (armed.times) {
    return "softgpu: the fault [" + r.text + "] happened " + in_brackets(armed.times) +
           " times only: there were no more " + launches_of(r) + "\n";
  }
  if (!armed.why.empty()) {
    return line(armed, "of " + in_brackets(armed.seen) + " " + launches_of(r) +
                           " none could have it; of the last one: " + armed.why);
  }
  const bool own = !r.kernel.empty() || r.kind == RequestKind::kCopy;
  const uint64_t came = !own ? now - armed.past : armed.seen;
  const uint64_t wanted = armed.due - armed.past;
  return line(armed, in_brackets(came) + " " + launches_of(r) +
                         " came since it was asked for, it was to be at number " +
                         in_brackets(wanted));
}

std::string missed_from_start(const Armed& armed) {
  return armed.times ? "" : line(armed, "the device was never used");
}

}  // namespace softgpu
