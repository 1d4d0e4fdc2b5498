// What is said and done about a replay that computes something else than the program was told.
#include "server/recovery/divergence.h"

#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>

#include "check.h"
#include "ring/channel.h"
#include "server/recovery/recovery.h"

namespace {

using namespace pyft;          // NOLINT: a test
using namespace pyft::server;  // NOLINT: a test

bool singles(float before, float now) {
  return contradicts(std::bit_cast<uint32_t>(before), std::bit_cast<uint32_t>(now), 4);
}

bool doubles(double before, double now) {
  return contradicts(std::bit_cast<uint64_t>(before), std::bit_cast<uint64_t>(now), 8);
}

TEST(numbers_that_are_close_decide_nothing) {
  CHECK(!singles(1.0f, std::nextafter(1.0f, 2.0f)));
  CHECK(!singles(-7.25e-5f, -7.25e-5f * (1 + 1e-5f)));
  CHECK(singles(1.0f, 1.1f));
  CHECK(singles(1.0f, -1.0f));
  CHECK(singles(0.0f, 1e-30f));
  CHECK(singles(3.0f, INFINITY));
  CHECK(singles(3.0f, NAN));
  CHECK(!singles(NAN, std::bit_cast<float>(0x7fc00001)));
  CHECK(!doubles(2.5, 2.5 + 1e-10));
  CHECK(doubles(2.5, 2.5001));
  CHECK(!contradicts(0x3c00, 0x3c01, 2));  // fp16: 1 and the next one
  CHECK(!contradicts(0x4049, 0x404a, 2));  // bf16
  CHECK(contradicts(0x3c00, 0xbc00, 2));
  const uint64_t pair = uint64_t{std::bit_cast<uint32_t>(2.0f)} << 32;
  CHECK(!contradicts(pair | 0x3f800000, pair | 0x3f800001, 8));
}

TEST(counts_flags_and_odd_sizes_always_do) {
  for (const int64_t count :
       {int64_t{1}, int64_t{12}, int64_t{2000}, int64_t{1} << 22, int64_t{-3}})
    for (const uint64_t bytes : {uint64_t{4}, uint64_t{8}}) {
      const uint64_t mask = bytes == 8 ? ~uint64_t{0} : 0xffffffff;
      CHECK(contradicts(static_cast<uint64_t>(count) & mask,
                        static_cast<uint64_t>(count + 1) & mask, bytes));
    }
  CHECK(contradicts(1000, 1001, 2));
  CHECK(contradicts(0, 1, 1));
  CHECK(contradicts(0x3f8000, 0x3f8001, 3));
  CHECK(singles(0.0f, 1.0f));  // a scaler's flag
}

struct End {
  int code;
  std::string text;
  uint64_t differed, seq;
};

// What becomes of a server that finds this difference; code 0: it goes on.
End end_of(ring::ReplayMode mode, DivergencePolicy policy, const Difference& difference) {
  ring::ChannelShape shape;
  shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
  std::string error;
  const auto channel = ring::Channel::create(shape, &error);
  ring::ControlPage& page = channel->control();
  page.replay_mode = static_cast<uint32_t>(mode);
  page.dispatching_seq = 99;
  std::cout.flush();  // or the child says it as well
  const pid_t child = fork();
  if (child == 0) {
    Recovery recovery(*channel);
    recovery.set_policy(policy);
    recovery.set_call_names([](uint16_t call) { return call == 70 ? "aCall" : nullptr; });
    recovery.agreed();
    recovery.differed(difference);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(page.compared.load(), 2u);
  CHECK_EQ(page.fault_kind == static_cast<uint32_t>(ring::FaultKind::kDiverged),
           WEXITSTATUS(status) == ring::kDivergedExit);
  CHECK(!page.fault_text[0] || page.fault_seq == difference.seq);
  return {WEXITSTATUS(status), page.fault_text, page.differed, page.differed_seq};
}

TEST(the_first_difference_asks_for_an_entry_by_entry_replay) {
  for (const auto policy : {DivergencePolicy::kStrict, DivergencePolicy::kReport}) {
    const End end = end_of(ring::ReplayMode::kNormal, policy, {5, 70, "x, not y", false});
    CHECK_EQ(end.code, ring::kDivergedExit);
    CHECK_EQ(end.text, "entry [5] aCall gives x, not y");
    CHECK_EQ(end.seq, 5u);
  }
}

TEST(the_policy_decides_about_what_differs_again) {
  const Difference plain{5, 71, "x", false}, decides{5, 71, "x", true}, near{5, 0, "x", false};
  const auto serial = ring::ReplayMode::kSerial;
  const auto strict = DivergencePolicy::kStrict, report = DivergencePolicy::kReport;
  CHECK_EQ(end_of(serial, strict, plain).code, ring::kDivergedExit);
  CHECK_EQ(end_of(serial, strict, near).text, "entry [5] or one before it: x");
  const End counted = end_of(serial, report, plain);
  CHECK_EQ(counted.code, 0);
  CHECK_EQ(counted.differed, 1u);
  CHECK_EQ(counted.seq, 5u);
  const End stopped = end_of(serial, report, decides);
  CHECK_EQ(stopped.code, ring::kDivergedExit);
  CHECK_EQ(stopped.text, "entry [5] of call [71] gives x: it may have decided by that");
}

TEST(values_are_named) {
  ring::JournalRecord record{};
  record.bytes = 4;
  record.word = 5;
  CHECK_EQ(difference_text(record, 0x10),
           "[4] bytes [0x00000010], the program was given [0x00000005]");
  record.bytes = 100;
  record.digest.low = 0xab;
  CHECK_EQ(difference_text(record, 1),
           "[100] bytes with digest [0x0000000000000001], the program was given "
           "[0x00000000000000ab]");
  const char bytes[] = "\x01\x02\x03\x04\x05\x06\x07\x08\x09";
  CHECK_EQ(word_of(bytes, 3), 0x030201u);
  CHECK_EQ(word_of(bytes, 9), 0x0807060504030201u);
}

}  // namespace

CHECK_MAIN
