#include "fault/missed_faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "core/log.h"
#include "core/settings.h"

namespace softgpu {
namespace {

std::string in_brackets(uint64_t n) {
  return "[" + std::to_string(n) + "]";
}

std::string note_of(const FaultRequest& request) {
  return "happened SOFTGPU_FAULT=" + request.text;
}

// In any of the processes that share the file.
bool is_noted(const FaultRequest& request) {
  if (request.note) return false;
  std::ifstream file(settings::fault_notes());
  for (std::string line; std::getline(file, line);)
    if (line == note_of(request)) return true;
  return false;
}

// Where faults are noted, others may have it: what reads the notes tells of the rest.
std::string line(const Armed& armed, const std::string& why) {
  if (is_noted(armed.request)) return "";
  const bool notes = armed.request.note || *settings::fault_notes();
  const std::string end =
      notes ? "has not come to [pid " + std::to_string(getpid()) + "]" : "did not happen";
  return "softgpu: the fault [" + armed.request.text + "] " + end + ": " + why + "\n";
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

// The file outlives this process. One write, so that lines of several processes stay whole.
void write_fault(const FaultRequest& request) {
  const char* const path = settings::fault_notes();
  if (!*path || request.note) return;
  const std::string line = note_of(request) + "\n";
  const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, line.data(), line.size()) < 0)
    log_line(SOFTGPU_LOG_WARNING, "[SOFTGPU_FAULT_NOTES]: [%s] cannot be written", path);
  close(fd);
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
