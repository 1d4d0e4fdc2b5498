#include "server/recovery/snapshot_options.h"

#include <sched.h>

#include "pyft/settings.h"

namespace pyft::server {

namespace {

// An agent that waits for a vote about an audit answers no sooner: docs/deadlines.md.
constexpr uint64_t kVoteNs = 60'000'000'000;

// The client uses one core and the server's dispatch thread another.
bool has_cores_to_spare() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 2;
}

}  // namespace

checkpoint::SnapshotOptions snapshot_options() {
  checkpoint::SnapshotOptions options;
  options.defers = true;
  options.every = settings::cut_every();
  const auto late = settings::background_copies();
  if (!late && !has_cores_to_spare()) options.late = checkpoint::Late::kNever;
  if (late == settings::BackgroundCopies::kNever) options.late = checkpoint::Late::kNever;
  if (late == settings::BackgroundCopies::kAlways) options.late = checkpoint::Late::kAlways;
  options.jit = settings::protect() == settings::Protect::kJit;
  options.audits = settings::dmr() == settings::Dmr::kAudit;
  if (options.audits) {
    options.audit_wait_ns = static_cast<uint64_t>(settings::audit_wait_s() * 1e9);
    options.answer_ns = kVoteNs;
  }
  options.arbitrates = settings::arbitrate();
  return options;
}

}  // namespace pyft::server
