// Which launch gets which of the faults that have been asked for, step by step: what two threads do
// at once in a program, here one after the other.
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "check.h"
#include "device/armed_faults.h"

namespace {

using softgpu::ArmedFaults;
using softgpu::Decision;

void arm(ArmedFaults* faults, const std::string& text) {
  std::vector<softgpu::FaultRequest> asked;
  CHECK_EQ(softgpu::parse_faults(text, &asked), std::string());
  for (const auto& request : asked) faults->arm(request);
}

Decision launch(ArmedFaults* faults) {
  return faults->decide(faults->begin(0, "k", {}, {}));
}

size_t kept(const Decision& decision) {
  return decision.result_flips.size() + decision.upsets.size();
}

constexpr const char* kKept[] = {"flip,result=random,kernel=k", "upset,kernel=k"};

}  // namespace

TEST(one_launch_at_a_time_has_what_only_its_end_decides) {
  for (const char* const text : kKept) {
    ArmedFaults faults;
    arm(&faults, text);
    const Decision first = launch(&faults);
    CHECK_EQ(kept(first), size_t{1});
    CHECK_EQ(kept(launch(&faults)), size_t{0});
    faults.release(first);
    CHECK_EQ(kept(launch(&faults)), size_t{1});
    CHECK(faults.any());
  }
}

TEST(what_is_cleared_while_a_launch_has_it_does_not_come_back) {
  for (const char* const text : kKept) {
    ArmedFaults faults;
    arm(&faults, text);
    const Decision decision = launch(&faults);
    faults.clear({});
    faults.release(decision);  // the launch has failed before it ran
    CHECK(!faults.any());
    CHECK_EQ(kept(launch(&faults)), size_t{0});
    CHECK_EQ(faults.missed(), std::string());
  }
}

TEST(what_is_for_any_device_stays_when_one_device_is_cleared) {
  unsigned char notes[softgpu::kNotes] = {};
  ArmedFaults faults;
  faults.set_notes(notes);
  arm(&faults, "flip,result=random,kernel=k,note=3");
  const Decision decision = launch(&faults);
  faults.clear(0);
  CHECK(faults.ended(decision.result_flips.at(0).first, true, "a bit was flipped"));
  CHECK_EQ(int{notes[3]}, 1);
  CHECK(!faults.any());
}

CHECK_MAIN
