// Launches of kernels that the device executes twice: which ones, what is compared, what is
// counted.
#include "server/dmr/kernels.h"
#include "check.h"
#include "own_server.h"

#include <vector>

namespace {

using namespace pyft;          // NOLINT: a test
using namespace pyft::server;  // NOLINT
using backend::TwiceEnd;

const Handle kKernel = Handle::make(HandleKind::kKernel, 1, 1);

// A device that says of a launch what the test wants.
struct Device {
  backend::TwiceHears* hears = nullptr;
  TwiceEnd end = TwiceEnd::kDone;
  std::vector<int> first, second;
  unsigned places = 0;
  int launches = 0;
} device;

void ask(backend::TwiceHears* hears, unsigned places, uint64_t) {
  device.hears = hears;
  if (hears) device.places = places;
}

CUresult launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                CUstream, void**, void**) {
  ++device.launches;
  if (!device.hears) return CUDA_SUCCESS;
  for (const bool again : {false, true})
    for (const int& one : again ? device.second : device.first)
      device.hears->wrote(again, reinterpret_cast<uint64_t>(&one), sizeof one);
  device.hears->ended(device.end, "a_kernel", 10, 20);
  return CUDA_SUCCESS;
}

struct Heard : dmr::Kernels::Hears {
  int times = 0;
  bool compared = false, equal = false;
  std::string kernel;
  void executed_twice(const dmr::Launch& one, const std::string& name) override {
    ++times;
    kernel = name;
    compared = one.is_compared();
    equal = one.outputs(false) == one.outputs(true);
  }
};

struct Rank {
  backend::Table table = [] {
    backend::Table made{};
    made.cuLaunchKernel = launch;
    return made;
  }();
  OwnServer server{&table};
  Heard heard;
  dmr::SecondExecutions::Options options;
  explicit Rank(dmr::Kernels::Mode mode) {
    options.mode = mode;
    options.places = 3;
    options.memory = 1 << 20;
    server.session.table(HandleKind::kKernel).bind(kKernel, reinterpret_cast<void*>(0x99));
    device = {};
  }
  void run(bool voted = false) {
    dmr::Kernels kernels(server.session, ask, options, heard);
    cmd::cuLaunchKernel c{};
    c.kernel = kKernel.value;
    c.grid_x = c.grid_y = c.grid_z = c.block_x = c.block_y = c.block_z = 1;
    EntryHeader header{};
    header.call = static_cast<uint16_t>(Call::cuLaunchKernel);
    header.reply_slot = ring::kNoSlot;
    CHECK(kernels.perform(header, std::as_bytes(std::span(&c, 1)), {}, 7, voted).ok());
    CHECK(!device.hears);
  }
  ring::KernelCounters& counters() { return ring::kernel_counters(page()); }
  ring::ControlPage& page() { return server.channel->control(); }
};

using Mode = dmr::Kernels::Mode;

}  // namespace

TEST(what_both_have_written_is_compared) {
  Rank rank(Mode::kFull);
  rank.run();
  CHECK(rank.heard.compared && rank.heard.equal);  // nothing
  CHECK_EQ(device.places, 3u);
  CHECK_EQ(rank.heard.kernel, std::string("a_kernel"));
  device.first = {1, 2};
  rank.run();
  CHECK(rank.heard.compared && !rank.heard.equal);
  CHECK_EQ(rank.counters().dmr_kernels_again.load(), uint64_t{2});
  CHECK_EQ(rank.page().dmr_kernels.load(), uint64_t{0});
  CHECK_EQ(rank.page().dmr_again_ns.load(), uint64_t{40});
}

TEST(a_second_execution_that_fails_is_like_no_other) {
  Rank rank(Mode::kFull);
  device.end = TwiceEnd::kSecondFailed;
  rank.run();
  CHECK(rank.heard.compared && !rank.heard.equal);
}

TEST(addresses_are_part_of_what_was_written) {
  dmr::Launch one({}, {}, 5, 0, false);
  const std::vector<int> same{4, 4};
  const auto at = [&](size_t i) { return reinterpret_cast<uint64_t>(&same[i]); };
  one.wrote(false, at(0), 4);
  one.wrote(true, at(1), 4);
  one.ended(TwiceEnd::kDone, "", 0, 0);
  CHECK(one.outputs(false) != one.outputs(true));
}

TEST(what_cannot_be_compared_is_counted_by_its_reason) {
  Rank rank(Mode::kFull);
  for (const auto end : {TwiceEnd::kOrder, TwiceEnd::kHost, TwiceEnd::kCalls, TwiceEnd::kClock,
                         TwiceEnd::kWaits, TwiceEnd::kRoom}) {
    device.end = end;
    rank.run();
    CHECK(!rank.heard.compared);
  }
  const ring::KernelCounters& kernels = rank.counters();
  for (const auto* one :
       {&kernels.dmr_kernels_order, &kernels.dmr_kernels_host, &kernels.dmr_kernels_calls,
        &kernels.dmr_kernels_clock, &kernels.dmr_kernels_waits, &kernels.dmr_kernels_room})
    CHECK_EQ(one->load(), uint64_t{1});
  CHECK_EQ(rank.page().dmr_kernels.load(), uint64_t{6});
  rank.page().shared.store(ring::kImports);
  rank.run();
  CHECK_EQ(kernels.dmr_kernels_host.load(), uint64_t{2});
  CHECK_EQ(rank.heard.times, 6);
}

TEST(other_modes_execute_twice_what_a_vote_asks_for) {
  for (const Mode mode : {Mode::kNone, Mode::kIdle}) {
    Rank rank(mode);
    rank.run();
    CHECK_EQ(rank.heard.times, 0);
    CHECK_EQ(rank.page().dmr_kernels.load(), uint64_t{1});
    CHECK_EQ(rank.counters().dmr_kernels_later.load(), uint64_t{mode == Mode::kIdle});
    rank.run(true);
    CHECK_EQ(rank.heard.times, 1);
    CHECK_EQ(device.launches, 2);
  }
}

CHECK_MAIN
