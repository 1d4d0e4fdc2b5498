#include "checkpoint/snapshot/step_room.h"

#include <algorithm>

namespace pyft::checkpoint {

namespace {

constexpr auto kKinds = {&LogUse::ring, &LogUse::arena, &LogUse::journal};
constexpr uint64_t kWithoutLength = 2;  // steps: what lies before the first is the program's start

uint64_t distance(uint64_t from, uint64_t to) {
  return to - std::min(from, to);
}

}  // namespace

void StepRoom::step(const LogUse& cut) {
  for (const auto kind : kKinds) length_.*kind = distance(step_.*kind, cut.*kind);
  step_ = cut;
  ++steps_;
}

// Before two steps have come nothing is known of them. What is in the log is there as long as it is
// not full, and at three quarters of it a program without steps, such as an evaluation, is known as
// one.
bool StepRoom::lasts(uint64_t LogUse::* kind, const LogUse& now) const {
  const uint64_t room = room_.*kind, used = distance(line_.*kind, now.*kind);
  if (!room) return true;
  const uint64_t since = distance(std::max(step_.*kind, line_.*kind), now.*kind);
  if (steps_ < kWithoutLength) return since <= room / 4 * 3;
  const uint64_t length = length_.*kind, gone = distance(step_.*kind, now.*kind);
  if (gone > length + length / 4) return used <= room / 2;  // no step as the last one was
  return used + distance(gone, length) <= room;
}

bool StepRoom::lasts(const LogUse& now) const {
  return std::ranges::all_of(kKinds, [&](const auto kind) { return lasts(kind, now); });
}

}  // namespace pyft::checkpoint
