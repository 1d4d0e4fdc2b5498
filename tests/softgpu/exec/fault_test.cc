// Bad programs end in a Fault that says where, never in a crash.
#include <algorithm>

#include "exec/kernel_name.h"
#include "one_warp.h"

namespace softgpu::exec {

static void expect(OneWarp* w, FaultKind kind, std::initializer_list<const char*> parts) {
  CHECK(!w->run());
  CHECK(w->block.fault.kind == kind);
  for (const char* part : parts) {
    const bool found = w->block.fault.message.find(part) != std::string::npos;
    if (!found) std::cerr << "[" << w->block.fault.message << "] lacks [" << part << "]\n";
    CHECK(found);
  }
}

static Words ldg() {
  return Words("000001ee900_0000000004047381").rd(8).ra(2);
}

TEST(global_out_of_range) {
  OneWarp w({ldg()});
  w.reg(2).lane[3] = 0x1000;
  w.reg(3).lane[3] = 0x7fff;
  expect(&w, FaultKind::kIllegalAddress,
         {"kernel [test]", "block [0,0,0]", "thread [0,0,0]", "pc [0x0]", "address [0x0]"});
}

TEST(global_one_bad_lane) {
  alignas(64) uint32_t words[32] = {};
  OneWarp w({Words("00000000f00_0000000100047802").rd(4), ldg()});
  const auto base = reinterpret_cast<uint64_t>(words);
  w.memory.add(base, sizeof words);
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t address = i == 17 ? 0xdead0000u : base + 4 * static_cast<uint64_t>(i);
    w.reg(2).lane[i] = static_cast<uint32_t>(address);
    w.reg(3).lane[i] = static_cast<uint32_t>(address >> 32);
  }
  expect(&w, FaultKind::kIllegalAddress, {"thread [17,0,0]", "pc [0x10]", "address [0xdead0000]"});
}

// Lane n of the warp has this address and n more bytes in R2 and R3.
static void bytes_from(OneWarp* w, uint64_t address) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t at = address + static_cast<uint64_t>(i);
    w->reg(2).lane[i] = static_cast<uint32_t>(at);
    w->reg(3).lane[i] = static_cast<uint32_t>(at >> 32);
  }
}

// The first half may be written, the second one only be read.
TEST(global_store_to_read_only_memory) {
  alignas(64) uint8_t bytes[2 * kLanes] = {};
  const auto base = reinterpret_cast<uint64_t>(bytes);
  const Words stg = Words("0000010e100_ffffe01712007386").ra(2).rb(8).set(40, 24, 0);
  const Words load = Words("000001ee100_0000000004047381").rd(8).ra(2);
  const auto run_at = [&](const Words& word, uint64_t address) {
    OneWarp w({word});
    w.memory.add(base, kLanes);
    w.memory.add(base + kLanes, kLanes, false);
    for (uint32_t& lane : w.reg(8).lane) lane = 7;
    bytes_from(&w, address);
    w.run();
    return w.block.fault.message;
  };
  CHECK_EQ(run_at(load, base + 9), "");
  CHECK_EQ(run_at(stg, base), "");
  CHECK_EQ(std::count(bytes, bytes + kLanes, 7), kLanes);
  const std::string whole = run_at(stg, base + kLanes), part = run_at(stg, base + 9);
  CHECK(whole.find("write to read-only memory of [1] bytes") != std::string::npos);
  CHECK(whole.find("thread [0,0,0]") != std::string::npos);
  CHECK(part.find("thread [23,0,0]") != std::string::npos);
  CHECK_EQ(std::count(bytes + kLanes, bytes + 2 * kLanes, 0), kLanes);
}

TEST(global_misaligned) {
  alignas(64) uint32_t words[64] = {};
  OneWarp w({ldg()});
  const auto base = reinterpret_cast<uint64_t>(words);
  w.memory.add(base, sizeof words);
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t address = base + 4 * static_cast<uint64_t>(i) + 2;
    w.reg(2).lane[i] = static_cast<uint32_t>(address);
    w.reg(3).lane[i] = static_cast<uint32_t>(address >> 32);
  }
  expect(&w, FaultKind::kMisalignedAddress, {"misaligned", "thread [0,0,0]"});
}

TEST(shared_out_of_range) {
  OneWarp w({Words("00000000800_0000000002007388").ra(2).rb(8)}, 128);
  for (int i = 0; i < kLanes; ++i) w.reg(2).lane[i] = static_cast<uint32_t>(i) * 8;
  expect(&w, FaultKind::kIllegalAddress, {"shared", "thread [16,0,0]", "address [0x80]"});
}

TEST(local_out_of_range) {
  OneWarp w({Words("00000100800_000000000a007983").rd(8).ra(2)});
  for (uint32_t& lane : w.reg(2).lane) lane = 1 << 20;
  expect(&w, FaultKind::kIllegalAddress, {"local", "address [0x100000]"});
}

TEST(trap) {
  OneWarp w({Words("00000300000_000000040000795c")});
  expect(&w, FaultKind::kDeviceTrap, {"trap"});
}

TEST(branch_out_of_the_code) {
  OneWarp w({Words("00003800000_0000000000007947").set(34, 48, 0x10000)});
  expect(&w, FaultKind::kIllegalInstruction, {"out of the code"});
}

TEST(register_branch_to_nowhere) {
  OneWarp w({Words("00003800000_0000000002007949").ra(2)});
  for (uint32_t& lane : w.reg(2).lane) lane = 12345;
  expect(&w, FaultKind::kIllegalInstruction, {"jump to"});
}

TEST(call_of_unknown_function) {
  OneWarp w({Words("00003c00000_0000000002007343").ra(2)});
  expect(&w, FaultKind::kIllegalInstruction, {"unknown function"});
}

// Half of the warp waits at the barrier of the block, the other half for a re-convergence with it.
TEST(deadlock) {
  OneWarp w({Words("00003800000_0000000000007945").set(34, 30, 32 / 4),
             Words("00000000000_0000000000007b1d").guard(0),
             Words("00003800000_0000000000007941")});
  w.pred(0) = 0xffff;
  expect(&w, FaultKind::kLaunchTimeout, {"wait for each other"});
}

TEST(unknown_instruction) {
  Kernel kernel;
  const uint64_t words[2] = {0xfff, 0};
  kernel.name = "bad";
  kernel.text = {reinterpret_cast<const uint8_t*>(words), sizeof words};
  CHECK(!prepare_kernel(kernel).empty());
  Launch launch;
  launch.kernel = &kernel;
  AddressSpace memory;
  const Fault fault = run_kernel(launch, {}, memory, nullptr);
  CHECK(fault.kind == FaultKind::kIllegalInstruction);
  CHECK(fault.message.find("kernel [bad]") != std::string::npos);
}

// The table knows more words than there are meanings.
TEST(instructions_of_unknown_meaning) {
  const auto refusal = [](const char* sample) {
    const Word words[2] = {Words(sample).word(), exit_word().word()};
    Kernel kernel;
    kernel.name = "odd";
    kernel.text = {reinterpret_cast<const uint8_t*>(words), sizeof words};
    return prepare_kernel(kernel);
  };
  CHECK_EQ(
      refusal("000008f47ff_00000006020473a8"),
      "instruction [ATOMG.E.MIN.EF.F32.FTZ.RN.STRONG.GPU PT, R4, [R2], R6] has an operation that "
      "its type does not have");
  CHECK_EQ(refusal("00001014900_000000060200798e"),
           "instruction [RED.E.MAX.EF.F16x2.RN.STRONG.GPU [R2], R6] has an operation that its type "
           "does not have");
  CHECK_EQ(refusal("00000000f00_0240000000047a02"),
           "instruction [MOV R4, c[0x9][0x0]] reads no constant bank");
  CHECK_EQ(refusal("00000000f00_0040000000047a02"),
           "instruction [MOV R4, c[0x1][0x0]] reads no constant bank");
  CHECK_EQ(refusal("00000020000_00000000020473c2"),
           "instruction [R2UR P1, UR4, R2] writes a predicate of unknown meaning");
  CHECK_EQ(refusal("00000020500_00000000020473aa"),
           "instruction [QSPC.E.S P1, R4, [R2]] writes a register of unknown meaning");
  CHECK_EQ(refusal("000000e0000_00000000020473c2"), "");  // R2UR UR4, R2
}

TEST(a_kernel_is_named_as_its_source_has_it) {
  CHECK(readable_kernel_name("_Z3badiPil") == "bad");
  CHECK(readable_kernel_name("_Z5scaleIfEvPT_") == "scale<float>");
  CHECK(readable_kernel_name("plain_c") == "plain_c");
  CHECK(readable_kernel_name("_Znonsense") == "_Znonsense");
  CHECK(readable_kernel_name("") == "");
  // A template in an unnamed namespace, as nvcc writes it.
  CHECK(readable_kernel_name("_ZN2at39_GLOBAL__N__5cd812b1_7_Loss_cu_5b0651e14lossIfEEvPT_l") ==
        "at::(anonymous namespace)::loss<float>");
  const std::string longest(1000, 'k');
  CHECK(readable_kernel_name(longest) == longest.substr(0, 157) + "...");
}

}  // namespace softgpu::exec

CHECK_MAIN
