// What is said and done about a replay that computes something else than the program was told.
#include "checkpoint/replay/divergence.h"

#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "check.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/recovery/recovery.h"
#include "ring/channel.h"

namespace {

using namespace pyft;              // NOLINT: a test
using namespace pyft::checkpoint;  // NOLINT: a test

bool contradicts(uint64_t before, uint64_t now, uint64_t bytes) {
  const auto part = [bytes](const uint64_t& word) {
    return std::as_bytes(std::span(&word, 1)).first(bytes);
  };
  return account(part(before), part(now)) != Weight::kLastDigits;
}

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
  uint64_t differed, seq, corrected;
  std::string corrected_text;
  uint32_t kind;
};

// What becomes of a server that finds these differences in a replay, and then comes to its end;
// code 0: it goes on.
End end_of(ring::ReplayMode mode, DivergencePolicy policy,
           const std::vector<Difference>& differences, bool replaying = true,
           std::optional<std::pair<uint64_t, uint64_t>> told_wrong = {}) {
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
    recovery.set_replaying(replaying);
    if (told_wrong) recovery.told_wrong(told_wrong->first, told_wrong->second);
    recovery.set_call_names([](uint16_t call) { return call == 70 ? "aCall" : nullptr; });
    recovery.agreed();
    for (const Difference& difference : differences) recovery.differed(difference);
    recovery.settle();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(page.fault_kind != 0, WEXITSTATUS(status) == ring::kDivergedExit);
  return {WEXITSTATUS(status), page.fault_text,     page.differed,  page.differed_seq,
          page.corrected,      page.corrected_text, page.fault_kind};
}

End end_of(ring::ReplayMode mode, DivergencePolicy policy, const Difference& difference) {
  const End end = end_of(mode, policy, std::vector{difference});
  CHECK_EQ(end.differed, 1u);
  CHECK_EQ(end.seq, difference.seq);
  return end;
}

constexpr auto kNormal = ring::ReplayMode::kNormal, kSerial = ring::ReplayMode::kSerial;
constexpr auto kStrict = DivergencePolicy::kStrict, kReport = DivergencePolicy::kReport;
constexpr auto kUndecided = static_cast<uint32_t>(ring::FaultKind::kUndecided);

TEST(the_first_difference_asks_for_an_entry_by_entry_replay) {
  for (const auto policy : {DivergencePolicy::kStrict, DivergencePolicy::kReport}) {
    const End end = end_of(ring::ReplayMode::kNormal, policy, {5, 70, "x, not y"});
    CHECK_EQ(end.code, ring::kDivergedExit);
    CHECK_EQ(end.text, "entry [5] aCall gives x, not y");
    CHECK_EQ(end.seq, 5u);
  }
}

TEST(last_digits_end_nothing_that_reports) {
  const Difference digits{5, 70, "x, not y", Weight::kLastDigits};
  for (const auto mode : {ring::ReplayMode::kNormal, ring::ReplayMode::kSerial}) {
    const End counted = end_of(mode, DivergencePolicy::kReport, digits);
    CHECK_EQ(counted.code, 0);
    CHECK_EQ(counted.differed, 1u);
    CHECK_EQ(counted.seq, 5u);
    CHECK_EQ(end_of(mode, DivergencePolicy::kStrict, digits).code, ring::kDivergedExit);
  }
}

TEST(the_policy_decides_about_what_differs_again) {
  const Difference plain{5, 71, "x"}, decides{5, 71, "x", Weight::kDecides}, near{5, 0, "x"};
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

// The first replay computes all numbers before it asks for another one; what is no number ends it.
TEST(numbers_that_are_far_ask_for_another_replay_at_the_end) {
  const Difference far{5, 70, "x", Weight::kFar}, digits{4, 70, "y", Weight::kLastDigits},
      count{7, 70, "z", Weight::kDecides};
  const End end = end_of(kNormal, kReport, std::vector{digits, far, digits});
  CHECK_EQ(end.code, ring::kDivergedExit);
  CHECK_EQ(end.differed, 3u);
  CHECK_EQ(end.text, "entry [5] aCall gives x: it may have decided by that");
  CHECK_EQ(end_of(kNormal, kReport, std::vector{far, count, far}).differed, 2u);
  CHECK_EQ(end_of(kNormal, kStrict, std::vector{far, far}).differed, 1u);
  CHECK_EQ(end_of(kNormal, kReport, std::vector{far, far}, false).differed, 1u);
}

TEST(two_replays_that_agree_say_that_the_program_was_told_wrong) {
  const Difference same{5, 70, "x, not y", Weight::kFar, Repeated::kSame};
  for (const auto mode : {kNormal, kSerial}) {
    const End end = end_of(mode, kReport, same);
    CHECK_EQ(end.code, 0);
    CHECK_EQ(end.corrected, 1u);
    CHECK_EQ(end.corrected_text,
             "entry [5] aCall gives x, not y: two replays agree that this was wrong");
  }
  const Difference large{5, 70, "x", Weight::kUnseen, Repeated::kSame};
  CHECK_EQ(end_of(kSerial, kReport, std::vector{same, large}).corrected, 2u);
  // Of strictness nothing is left: but it is said what was found.
  const End strict = end_of(kSerial, kStrict, same);
  CHECK_EQ(strict.code, ring::kDivergedExit);
  CHECK(strict.text.ends_with("two replays agree that this was wrong"));
  CHECK(strict.kind != kUndecided);
}

TEST(what_was_told_before_a_mismatch_was_found_may_be_wrong) {
  const std::pair<uint64_t, uint64_t> told{5, 7};
  for (const auto policy : {kStrict, kReport})
    for (const auto weight : {Weight::kLastDigits, Weight::kUnseen, Weight::kFar}) {
      const Difference in{7, 70, "x, not y", weight}, behind{8, 70, "x, not y", weight};
      const End end = end_of(kNormal, policy, std::vector{in}, true, told);
      CHECK_EQ(end.code, 0);
      CHECK_EQ(end.corrected, 1u);
      CHECK_EQ(end_of(kNormal, policy, std::vector{behind}, true, told).corrected, 0u);
    }
  const Difference count{6, 70, "x", Weight::kDecides};
  const End end = end_of(kNormal, kStrict, std::vector{count}, true, told);
  CHECK_EQ(end.code, ring::kDivergedExit);
  CHECK(end.text.ends_with(": it may have decided by that"));
}

TEST(a_count_that_was_told_wrong_ends_every_job) {
  const Difference count{5, 70, "x", Weight::kDecides, Repeated::kSame};
  for (const auto policy : {kStrict, kReport}) {
    const End end = end_of(kSerial, policy, count);
    CHECK_EQ(end.code, ring::kDivergedExit);
    CHECK_EQ(end.corrected, 0u);
    CHECK(end.text.ends_with("two replays agree that this was wrong: it may have decided by that"));
  }
}

TEST(two_replays_that_differ_say_nothing_of_what_was_told) {
  const Difference noise{5, 70, "x", Weight::kFar, Repeated::kAnother};
  const End end = end_of(kSerial, kReport, noise);
  CHECK_EQ(end.code, ring::kDivergedExit);
  CHECK(end.kind != kUndecided);
  const Difference large{5, 70, "x", Weight::kUnseen, Repeated::kAnother};
  CHECK_EQ(end_of(kSerial, kReport, large).code, 0);
  CHECK_EQ(end_of(kSerial, kReport, large).corrected, 0u);
}

TEST(what_no_replay_has_computed_yet_asks_for_another_one) {
  const Difference first{5, 70, "x", Weight::kFar, Repeated::kNot};
  const End end = end_of(kSerial, kReport, std::vector{first, first});
  CHECK_EQ(end.code, ring::kDivergedExit);
  CHECK_EQ(end.kind, kUndecided);
  CHECK_EQ(end.differed, 2u);
  CHECK(end_of(kSerial, kStrict, first).kind != kUndecided);
}

// What the journal has of a result, and what replays find in its place.
struct Told {
  explicit Told(Bytes told) : bytes(told.size()) {
    const uint64_t kept = sample_bytes(bytes);
    memory.resize(2 + (2 * kept + 63) / 64);
    record = new (memory.data())
        ring::JournalRecord{memory.size() * sizeof(Line), 2, 0, {1}, 9, 0, bytes, {}, 0};
    record->digest = digest(told.data(), bytes, 0);
    record->word = word_of(told.data(), bytes);
    take_sample(told, Journal::told(record));
  }
  std::optional<Difference> again(Bytes now) {
    CHECK_EQ(now.size(), bytes);
    return compare_result(*record, now, digest(now.data(), bytes, 0));
  }
  std::optional<Difference> audited(Bytes now) {
    CHECK_EQ(now.size(), bytes);
    return compare_last(*record, now, digest(now.data(), bytes, 0));
  }
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  uint64_t bytes;
  std::vector<Line> memory;
  ring::JournalRecord* record;
};

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <class T>
Weight weight_of(const std::vector<T>& before, const std::vector<T>& now) {
  const auto found = Told(bytes_of(before)).again(bytes_of(now));
  CHECK(found.has_value());
  return found ? found->weight : Weight::kUnknown;
}

TEST(counts_of_any_width_are_never_close) {
  using Words = std::vector<int64_t>;
  CHECK(weight_of(Words(8, 64), Words(8, 0)) == Weight::kDecides);
  CHECK(weight_of(Words{15360, 15361, 1, 2}, Words{15361, 15360, 1, 2}) == Weight::kDecides);
  CHECK(weight_of(Words{INT64_MAX, 5, -1}, Words{INT64_MAX, 6, -1}) == Weight::kDecides);
  CHECK(weight_of(Words{int64_t{1} << 60, 5}, Words{4, 5}) == Weight::kDecides);  // a flipped bit
  using Ints = std::vector<int32_t>;
  CHECK(weight_of(Ints{1000, 2000, 3}, Ints{1001, 2000, 3}) == Weight::kDecides);
  using Flags = std::vector<uint8_t>;
  CHECK(weight_of(Flags(16, 1), Flags{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}) ==
        Weight::kDecides);
  CHECK(weight_of(Flags(9, 200), Flags{1, 2, 3, 4, 5, 6, 7, 8, 9}) == Weight::kDecides);
  // Counts that are kept as floating-point numbers.
  using Floats = std::vector<float>;
  CHECK(weight_of(Floats{7.f, 0.25f, 3.f}, Floats{8.f, 0.25f, 3.f}) == Weight::kDecides);
  using Doubles = std::vector<double>;
  CHECK(weight_of(Doubles{7, 0.1, 3}, Doubles{8, 0.1, 3}) == Weight::kDecides);
}

TEST(numbers_side_by_side_are_close_or_far) {
  using Floats = std::vector<float>;
  const float next = std::nextafter(2.718f, 3.f);
  CHECK(weight_of(Floats{2.718f, 0.f, 0.f, 0.f}, Floats{next, 0.f, 0.f, 0.f}) ==
        Weight::kDecides);  // or a count
  CHECK(weight_of(Floats{2.718f, 0.f, .5f, .7f}, Floats{next, 0.f, .5f, .7f}) ==
        Weight::kLastDigits);
  CHECK(weight_of(Floats{2.718f, .1f, .5f}, Floats{256.3f, .1f, .5f}) == Weight::kFar);
  CHECK(weight_of(Floats{2.5f, .1f, .5f}, Floats{2.75f, .1f, .5f}) == Weight::kFar);
  CHECK(weight_of(Floats{2.5f}, Floats{2.75f}) == Weight::kFar);
  CHECK(weight_of(Floats{10000.f}, Floats{10001.f}) == Weight::kDecides);
  CHECK(weight_of(Floats{2.718f, .1f, .5f}, Floats{NAN, .1f, .5f}) == Weight::kFar);
  // A sum that nearly vanishes.
  CHECK(weight_of(Floats{2.718f, 1e-8f, .5f}, Floats{2.718f, -3e-8f, .5f}) == Weight::kLastDigits);
  CHECK(weight_of(Floats{2.718f, .1f, .5f}, Floats{2.718f, .2f, .5f}) == Weight::kFar);
  // One that is wrong does not make the others alike.
  CHECK(weight_of(Floats{1e9f, .1f, .5f}, Floats{2.7f, .2f, .5f}) == Weight::kFar);
  using Doubles = std::vector<double>;
  CHECK(weight_of(Doubles{2.718, .1}, Doubles{std::nextafter(2.718, 3), .1}) ==
        Weight::kLastDigits);
  CHECK(weight_of(Doubles{2.718, .1}, Doubles{2.719, .1}) == Weight::kFar);
}

TEST(of_large_results_samples_tell_what_they_are) {
  std::vector<float> losses(100'000);
  for (size_t i = 0; i < losses.size(); ++i) losses[i] = 0.001f * static_cast<float>(i + 1);
  auto other = losses;
  other[17] *= 3;  // in no sample
  CHECK(weight_of(losses, other) == Weight::kUnseen);
  for (float& loss : other) loss = std::nextafter(loss, 1e9f);
  other[17] = losses[17];
  CHECK(weight_of(losses, other) == Weight::kLastDigits);
  std::vector<int64_t> tokens(100'000, 7), others = tokens;
  others[17] = 8;
  CHECK(weight_of(tokens, others) == Weight::kDecides);
  others.assign(100'000, 8);
  CHECK(weight_of(tokens, others) == Weight::kDecides);
}

TEST(a_replay_writes_down_what_the_next_one_is_compared_with) {
  const std::vector<float> told{NAN, 1.5f, .3f}, right{2.3f, 1.5f, .3f}, other{9.1f, 1.5f, .3f};
  Told loss(bytes_of(told));
  CHECK(loss.again(bytes_of(right))->repeated == Repeated::kNot);
  CHECK(loss.again(bytes_of(right))->repeated == Repeated::kSame);
  auto noisy = right;
  noisy[0] = std::nextafter(noisy[0], 3.f);
  CHECK(loss.again(bytes_of(noisy))->repeated == Repeated::kSame);  // but for last digits
  CHECK(loss.again(bytes_of(other))->repeated == Repeated::kAnother);
  CHECK(!loss.again(bytes_of(told)));
  CHECK(loss.again(bytes_of(right))->repeated == Repeated::kAnother);
  // Written by a server that died meanwhile.
  Journal::result(loss.record)->repeated = 0;
  CHECK(loss.again(bytes_of(right))->repeated == Repeated::kNot);
  // Without samples, since there was no room: nothing is known.
  loss.record->size = 64;
  CHECK(loss.again(bytes_of(right))->weight == Weight::kDecides);
}

// What was told is wrong, by another rank's fault; the rank itself gives what is right since.
TEST(an_audit_compares_with_what_the_rank_gave_last) {
  const std::vector<float> told{NAN, 1.5f, .3f}, right{2.3f, 1.5f, .3f}, other{9.1f, 1.5f, .3f};
  Told loss(bytes_of(told));
  CHECK(!loss.audited(bytes_of(told)));
  CHECK(
      loss.audited(bytes_of(right))->what.ends_with("the program was given [0x3fc000007fc00000]"));
  CHECK(loss.again(bytes_of(right)).has_value());
  CHECK(!loss.audited(bytes_of(right)));
  CHECK(!loss.audited(bytes_of(right)));  // nothing was written
  const auto found = loss.audited(bytes_of(other));
  CHECK(found->what.ends_with("the rank's replay gave [0x3fc0000040133333]"));
  CHECK(!found->told_only);
  // What is right was told, and a replay is wrong.
  CHECK(loss.audited(bytes_of(told)).has_value());
  Journal::result(loss.record)->repeated = 0;
  CHECK(loss.audited(bytes_of(right)).has_value());
  // A large one, of which no sample differs.
  std::vector<float> losses(100'000, .7f), others = losses;
  others[17] *= 3;
  Told large(bytes_of(losses));
  large.again(bytes_of(others));
  CHECK(!large.audited(bytes_of(others)));
  CHECK(large.audited(bytes_of(losses))->what.find("with digest") != std::string::npos);
}

TEST(without_room_for_samples_an_audit_has_only_what_was_told) {
  const std::vector<float> told{2.25f}, right{2.5f};
  Told loss(bytes_of(told));
  loss.record->size = 64;
  loss.again(bytes_of(right));
  CHECK(!loss.audited(bytes_of(told)));
  const auto found = loss.audited(bytes_of(right));
  CHECK(found->told_only);
  CHECK_EQ(found->what, "[4] bytes [0x40200000], the program was given [0x40100000]");
}

TEST(an_audit_blames_nothing_for_what_was_told_before_a_correction) {
  struct Audit : Differences {
    void differs(const Difference& difference) override { found.push_back(difference.seq); }
    void cannot_tell(const Difference& difference) override { doubts.push_back(difference.seq); }
    std::vector<uint64_t> found, doubts;
  } audit;
  std::string error;
  ring::ChannelShape shape;
  shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
  const auto channel = ring::Channel::create(shape, &error);
  Recovery recovery(*channel);
  recovery.audit(&audit);
  Difference told_only{5, 70, "x, not y"};
  told_only.told_only = true;
  recovery.differed(told_only);  // no fault was corrected
  recovery.told_wrong(0, 7);
  recovery.differed({6, 70, "x, not y"});
  recovery.differed(told_only);
  told_only.seq = 8;
  recovery.differed(told_only);
  CHECK(audit.found == (std::vector<uint64_t>{5, 6, 8}));
  CHECK(audit.doubts == std::vector<uint64_t>{5});
}

TEST(values_are_named) {
  const std::vector<uint32_t> five{5}, sixteen{16};
  CHECK_EQ(Told(bytes_of(five)).again(bytes_of(sixteen))->what,
           "[4] bytes [0x00000010], the program was given [0x00000005]");
  std::vector<int64_t> told(8, 64), now = told;
  now[3] = 0;
  CHECK_EQ(Told(bytes_of(told)).again(bytes_of(now))->what,
           "[64] bytes with, at [24], [0x0000000000000000], the program was given "
           "[0x0000000000000040]");
  const std::vector<float> losses(9, .5f);
  auto others = losses;
  others[8] = .75f;
  CHECK_EQ(Told(bytes_of(losses)).again(bytes_of(others))->what,
           "[36] bytes with, at [32], [0x3f400000], the program was given [0x3f000000]");
  const char bytes[] = "\x01\x02\x03\x04\x05\x06\x07\x08\x09";
  CHECK_EQ(word_of(bytes, 3), 0x030201u);
  CHECK_EQ(word_of(bytes, 9), 0x0807060504030201u);
}

}  // namespace

CHECK_MAIN
