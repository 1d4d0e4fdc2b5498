// Which SM a block runs on: kernels read it, and stuck bits of an SM hit the same blocks.
#include "one_warp.h"

namespace softgpu::exec {

// out[%ctaid.x] = {%smid, %nsmid}, as NVIDIA's assembler translates it.
constexpr uint64_t kText[][2] = {
    {0x00000000000679c3, 0x000e220000002500},  // S2UR UR6, SR_CTAID.X
    {0x0000000800077882, 0x000fe20000000000},  // UMOV UR7, 0x8
    {0x0000430000027a02, 0x000fe20000000f00},  // MOV R2, c[0x0][0x10c]
    {0x0000580000047ab9, 0x000fe20000000a00},  // ULDC.64 UR4, c[0x0][0x160]
    {0x0000000000007919, 0x000e620000004300},  // S2R R0, SR_VIRTUALSMID
    {0x00000007060472a5, 0x001fd2000f8e0004},  // UIMAD.WIDE.U32 UR4, UR6, UR7, UR4
    {0x00000000ff007986, 0x002fe8000c10e904},  // STG.E.SYS [UR4], R0
    {0x00000402ff007986, 0x000fe2000c10e904},  // STG.E.SYS [UR4+0x4], R2
    {0x000000000000794d, 0x000fea0003800000},  // EXIT
};
constexpr uint32_t kBlocks = 7;

struct Seen {
  uint32_t sm, sms;
};

static std::vector<Seen> seen_by_blocks(const Sms& sms, Upsets* upsets = nullptr) {
  std::vector<Seen> seen(kBlocks);
  const auto address = reinterpret_cast<uint64_t>(seen.data());
  Kernel kernel;
  kernel.name = "where";
  kernel.text = {reinterpret_cast<const uint8_t*>(kText), sizeof kText};
  kernel.param_bytes = sizeof address;
  Launch launch;
  launch.kernel = &kernel;
  launch.grid = {kBlocks, 1, 1};
  launch.params.resize(sizeof address);
  std::memcpy(launch.params.data(), &address, sizeof address);
  AddressSpace memory;
  memory.add(address, kBlocks * sizeof(Seen));
  const UpsetsHere here(upsets);
  const Fault fault = run_kernel(launch, sms, memory, nullptr);
  CHECK_EQ(fault.message, "");
  return seen;
}

TEST(blocks_are_on_sms_as_they_start) {
  const std::vector<Seen> seen = seen_by_blocks({3, 0});
  for (uint32_t i = 0; i < kBlocks; ++i) CHECK_EQ(seen[i].sm, i % 3);
  for (const Seen& one : seen) CHECK_EQ(one.sms, 3u);
}

TEST(blocks_of_a_second_execution_are_further_on) {
  const std::vector<Seen> seen = seen_by_blocks({3, 4});
  for (uint32_t i = 0; i < kBlocks; ++i) CHECK_EQ(seen[i].sm, (i + 4) % 3);
}

TEST(a_stuck_bit_is_on_the_sm_that_kernels_read) {
  for (const uint64_t first : {0, 1, 5}) {
    Upset stuck;
    stuck.aim.stuck = true;
    stuck.aim.unit = Unit::kAlu;
    stuck.aim.sm = 2;
    stuck.aim.lane = 0;
    stuck.aim.bit = 7;
    stuck.sms = {3, first};
    Upsets upsets{stuck};
    const std::vector<Seen> seen = seen_by_blocks({3, first}, &upsets);
    for (uint32_t i = 0; i < kBlocks; ++i) {
      const auto sm = static_cast<uint32_t>((i + first) % 3);
      CHECK_EQ(seen[i].sm, sm == 2 ? sm | 1 << 7 : sm);
    }
  }
}

}  // namespace softgpu::exec

CHECK_MAIN
