#include "checkpoint/recovery/recovery.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "checkpoint/resources/device_memory.h"
#include "checkpoint/resources/objects.h"
#include "pyft/log.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

// CUresult and cudaError_t have the same numbers for these.
constexpr int kDeviceFaults[] = {
    46,   // devices unavailable
    214,  // uncorrectable ECC error
    220,  // NVLink uncorrectable
    226,  // contained memory error
    700,  // illegal address
    702,  // launch timeout
    709,  // context is destroyed
    710,  // assert
    714,  // hardware stack error
    715,  // illegal instruction
    716,  // misaligned address
    717,  // invalid address space
    718,  // invalid program counter
    719,  // launch failed
    721,  // tensor memory leak
    999,  // unknown: fell off the bus
};

// The name of a call stands in brackets, as all values do; words do not.
std::string subject(const std::string& what) {
  return what.find(' ') == std::string::npos ? "[" + what + "]" : what;
}

}  // namespace

bool is_device_fault(int code) {
  return std::find(std::begin(kDeviceFaults), std::end(kDeviceFaults), code) !=
         std::end(kDeviceFaults);
}

Recovery::Recovery(ring::Channel& channel)
    : channel_(channel),
      journal_(channel),
      until_(channel.control().consumed.load(std::memory_order_acquire)),
      words_(replaces()) {}

// ---- the stages, in their order ----

uint64_t Recovery::restore(const Parts& parts) {
  const auto [store, memory, state, placement, maker, remote] = parts;

  enter(ring::Phase::kStarting);
  require(journal_.adopt(), state);
  if (journal_.exists() && !state.reads_host(journal_.area(), journal_.area_bytes()))
    require("the backend does not register the journal", state);
  if (replaces()) set_replaying(true);
  if (replaces() && store.has_committed()) restored_seq_ = store.committed().manifest.seq;

  enter(ring::Phase::kCommunicators);
  if (communicators && replaces()) require(communicators->rejoin(), state);

  enter(ring::Phase::kObjects);
  const Restored objects = restore_objects(channel_, store, state, placement, maker);
  require(objects.error, state);

  enter(ring::Phase::kRestore);
  require(restore_memory(channel_.control(), store, memory, remote), state);

  enter(ring::Phase::kReplay);
  return objects.position;
}

void Recovery::begin_replay(uint64_t position) {
  set_replaying(until_ > position);
  if (!replaying()) return go_live(position);
  PYFT_LOG(kRecovery, kDebug, "replays from position [%llu] to [%llu]",
           static_cast<unsigned long long>(position), static_cast<unsigned long long>(until_));
}

bool Recovery::replayed(uint64_t position) {
  channel_.control().replayed_entries.fetch_add(1, std::memory_order_relaxed);
  return position >= until_;
}

void Recovery::go_live(uint64_t position) {
  settle();
  PYFT_LOG(kRecovery, kDebug, "goes live at position [%llu]",
           static_cast<unsigned long long>(position));
  set_replaying(false);
  enter(ring::Phase::kLive);
  for (const auto from : {ring::ChannelStatus::kStarting, ring::ChannelStatus::kRecovering}) {
    auto expected = static_cast<uint32_t>(from);
    channel_.control().status.compare_exchange_strong(
        expected, static_cast<uint32_t>(ring::ChannelStatus::kServing));
  }
  if (reports_) reports_->live();
}

// A device that fails meanwhile is a reason of its own, and one that another attempt can cure.
void Recovery::require(const std::string& problem, DeviceState& state) {
  if (problem.empty()) return;
  check_device(state.status(), "a restore");
  fail(ring::FaultKind::kUnrecoverable, 0, problem);
}

void Recovery::enter(ring::Phase phase) {
  constexpr const char* kNames[] = {"live",    "starting",      "objects",
                                    "restore", "communicators", "replay"};
  PYFT_LOG(kRecovery, kDebug, "device [%u]: phase [%s]", channel_.device(),
           kNames[static_cast<size_t>(phase)]);
  ring::ControlPage& page = channel_.control();
  page.phase_ns[static_cast<size_t>(phase)].store(ring::now_ns());
  page.phase.store(static_cast<uint32_t>(phase), std::memory_order_release);
}

// ---- what else is known of it, and how it ends ----

bool Recovery::repairs() const {
  return channel_.store() && channel_.control().protect.load(std::memory_order_relaxed) ==
                                 static_cast<uint32_t>(ring::Protect::kSnapshot);
}

bool Recovery::restores_objects() const {
  return channel_.control().phase.load(std::memory_order_relaxed) ==
         static_cast<uint32_t>(ring::Phase::kObjects);
}

ring::ReplayMode Recovery::mode() const {
  return static_cast<ring::ReplayMode>(
      channel_.control().replay_mode.load(std::memory_order_relaxed));
}

void Recovery::leave_word(ring::FaultKind kind, int code, const std::string& text, uint64_t seq) {
  ring::ControlPage& page = channel_.control();
  if (!seq) seq = dispatching();
  page.fault_code = code;
  page.fault_seq = seq;
  std::memset(page.fault_text, 0, sizeof page.fault_text);
  std::strncpy(page.fault_text, text.c_str(), sizeof page.fault_text - 1);
  page.fault_kind.store(static_cast<uint32_t>(kind), std::memory_order_release);
  if (reports_) reports_->ends(kind, code, seq, text);
  std::fflush(nullptr);
}

void Recovery::no_place(const std::string& text) {
  const std::lock_guard once(end_mutex_);
  leave_word(ring::FaultKind::kNone, 0, text, 0);
  _exit(ring::kNoPlaceExit);
}

void Recovery::fail(ring::FaultKind kind, int code, const std::string& text, uint64_t seq) {
  const std::lock_guard once(end_mutex_);  // never given back: other threads wait for the end here
  leave_word(kind, code, text, seq);
  switch (kind) {
    case ring::FaultKind::kUnrecoverable:
      _exit(ring::kUnrecoverableExit);
    case ring::FaultKind::kDiverged:
    case ring::FaultKind::kUndecided:
      _exit(ring::kDivergedExit);
    case ring::FaultKind::kMismatch:
      _exit(ring::kMismatchExit);
    case ring::FaultKind::kMismatchSpread:
      _exit(ring::kMismatchSpreadExit);
    default:
      _exit(ring::kFaultExit);
  }
}

void Recovery::check_device(int code, const char* what) {
  if (!is_device_fault(code) || !repairs() || mode() == ring::ReplayMode::kDeliver) return;
  fail(ring::FaultKind::kDevice, code,
       subject(what) + " reports error [" + std::to_string(code) + "]");
}

void Recovery::agreed() {
  channel_.control().compared.fetch_add(1, std::memory_order_relaxed);
}

void Recovery::differed(const Difference& difference) {
  ring::ControlPage& page = channel_.control();
  agreed();
  if (audits() && difference.told_only && was_told_wrong(difference.seq))
    return differences_->cannot_tell(difference);
  if (audits()) return differences_->differs(difference);
  uint64_t none = 0;
  page.differed_seq.compare_exchange_strong(none, difference.seq);
  page.differed.fetch_add(1, std::memory_order_relaxed);
  switch (outcome_of(difference)) {
    case Outcome::kExpected:
      return;
    case Outcome::kGoesOn:
      return say(difference, "; what else differs is only counted");
    case Outcome::kCorrected:
      return note_corrected(difference);
    case Outcome::kAsksAgain: {
      const std::lock_guard lock(doubts_mutex_);
      if (!doubt_) doubt_ = difference;
      return;
    }
    case Outcome::kEnds:
      fail(kind_of(difference), 0, sentence(difference), difference.seq);
  }
}

Recovery::Outcome Recovery::outcome_of(const Difference& difference) const {
  const Weight weight = difference.weight;
  // Of memory that other processes write nothing expects the contents of then: the agent says so,
  // with the verdict.
  const bool imports = channel_.control().shared.load() & ring::kImports;
  if (imports && !difference.is_code) return Outcome::kExpected;
  if (weight != Weight::kDecides && was_told_wrong(difference.seq)) return Outcome::kCorrected;
  if (policy_ == DivergencePolicy::kStrict) return Outcome::kEnds;
  if (weight == Weight::kLastDigits) return Outcome::kGoesOn;
  const bool numbers = weight == Weight::kFar || weight == Weight::kUnseen;
  if (numbers && difference.repeated == Repeated::kSame) return Outcome::kCorrected;
  const bool again = mode() != ring::ReplayMode::kNormal;
  if (numbers && !(again && difference.repeated == Repeated::kAnother))
    return replaying() ? Outcome::kAsksAgain : Outcome::kEnds;
  const bool decides = weight == Weight::kFar || weight == Weight::kDecides;
  return again && !decides ? Outcome::kGoesOn : Outcome::kEnds;
}

void Recovery::told_wrong(uint64_t first, uint64_t last) {
  const std::lock_guard lock(told_mutex_);
  told_wrong_.emplace_back(first, last);
}

bool Recovery::was_told_wrong(uint64_t seq) const {
  const std::lock_guard lock(told_mutex_);
  return std::ranges::any_of(
      told_wrong_, [seq](const auto& told) { return told.first <= seq && seq <= told.second; });
}

// After an entry by entry replay there is another one only if no replay has told of this before.
ring::FaultKind Recovery::kind_of(const Difference& difference) const {
  const bool told = difference.repeated != Repeated::kNot || policy_ == DivergencePolicy::kStrict ||
                    difference.weight == Weight::kDecides;
  const bool again = mode() != ring::ReplayMode::kNormal;
  return again && !told ? ring::FaultKind::kUndecided : ring::FaultKind::kDiverged;
}

void Recovery::settle() {
  const std::lock_guard lock(doubts_mutex_);
  if (doubt_) fail(kind_of(*doubt_), 0, sentence(*doubt_), doubt_->seq);
}

void Recovery::say(const Difference& difference, const char* what_follows) {
  if (!said_.exchange(true))
    PYFT_LOG(kRecovery, kWarning, "device [%u]: %s%s", channel_.device(),
             sentence(difference).c_str(), what_follows);
}

// The state that the program goes on with is right.
void Recovery::note_corrected(const Difference& difference) {
  ring::ControlPage& page = channel_.control();
  {
    const std::lock_guard lock(doubts_mutex_);
    if (!page.corrected.load(std::memory_order_relaxed))
      std::strncpy(page.corrected_text, sentence(difference).c_str(),
                   sizeof page.corrected_text - 1);
    page.corrected.fetch_add(1, std::memory_order_release);
  }
  say(difference, ", and goes on with what is right");
}

std::string Recovery::sentence(const Difference& difference) const {
  std::string text = "entry [" + std::to_string(difference.seq) + "]";
  if (!difference.call) return text + " or one before it: " + difference.what;
  const char* const name = call_name_ ? call_name_(difference.call) : nullptr;
  text += name ? std::string(" ") + name : " of call [" + std::to_string(difference.call) + "]";
  text += " gives " + difference.what;
  const bool decides = difference.weight == Weight::kDecides;
  const bool known = was_told_wrong(difference.seq);
  const bool wrong = known || difference.repeated == Repeated::kSame;
  if (known) text += ": behind it something was found that was computed wrongly";
  if (wrong && !known) text += ": two replays agree that this was wrong";
  const bool far = difference.weight == Weight::kFar && !wrong;
  return decides || far ? text + ": it may have decided by that" : text;
}

}  // namespace pyft::checkpoint
