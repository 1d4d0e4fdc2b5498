#include "server/recovery/recovery.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ring/wait.h"
#include "server/recovery/agent_link.h"

namespace pyft::server {

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

}  // namespace

bool is_device_fault(int code) {
  return std::find(std::begin(kDeviceFaults), std::end(kDeviceFaults), code) !=
         std::end(kDeviceFaults);
}

Recovery::Recovery(ring::Channel& channel)
    : channel_(channel),
      journal_(channel),
      until_(channel.control().consumed.load(std::memory_order_acquire)) {}

bool Recovery::repairs() const {
  return channel_.store() && channel_.control().protect.load(std::memory_order_relaxed) ==
                                 static_cast<uint32_t>(ring::Protect::kCapture);
}

bool Recovery::restores_objects() const {
  return channel_.control().phase.load(std::memory_order_relaxed) ==
         static_cast<uint32_t>(ring::Phase::kObjects);
}

ring::ReplayMode Recovery::mode() const {
  return static_cast<ring::ReplayMode>(
      channel_.control().replay_mode.load(std::memory_order_relaxed));
}

void Recovery::enter(ring::Phase phase) {
  ring::ControlPage& page = channel_.control();
  page.phase_ns[static_cast<size_t>(phase)].store(ring::now_ns());
  page.phase.store(static_cast<uint32_t>(phase), std::memory_order_release);
}

void Recovery::leave_word(ring::FaultKind kind, int code, const std::string& text, uint64_t seq) {
  ring::ControlPage& page = channel_.control();
  if (!seq) seq = dispatching();
  page.fault_code = code;
  page.fault_seq = seq;
  std::memset(page.fault_text, 0, sizeof page.fault_text);
  std::strncpy(page.fault_text, text.c_str(), sizeof page.fault_text - 1);
  page.fault_kind.store(static_cast<uint32_t>(kind), std::memory_order_release);
  if (agent_ >= 0) send_last_words(agent_, kind, code, seq, text);
  std::fflush(nullptr);
}

void Recovery::no_place(const std::string& text) {
  const std::lock_guard once(mutex_);
  leave_word(ring::FaultKind::kNone, 0, text, 0);
  _exit(kNoPlaceExit);
}

void Recovery::fail(ring::FaultKind kind, int code, const std::string& text, uint64_t seq) {
  const std::lock_guard once(mutex_);  // never given back: other threads wait for the end here
  leave_word(kind, code, text, seq);
  switch (kind) {
    case ring::FaultKind::kUnrecoverable:
      _exit(ring::kUnrecoverableExit);
    case ring::FaultKind::kDiverged:
    case ring::FaultKind::kUndecided:
      _exit(ring::kDivergedExit);
    default:
      _exit(ring::kFaultExit);
  }
}

void Recovery::agreed() {
  channel_.control().compared.fetch_add(1, std::memory_order_relaxed);
}

void Recovery::differed(const Difference& difference) {
  ring::ControlPage& page = channel_.control();
  agreed();
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
  // Of memory that other processes write nobody expects the contents of then: the agent says so,
  // with the verdict.
  const bool imports = channel_.control().shared.load() & ring::kImports;
  if (imports && !difference.is_code) return Outcome::kExpected;
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
    std::fprintf(stderr, "pyft-server: device [%u]: %s%s\n", channel_.device(),
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
  const bool wrong = difference.repeated == Repeated::kSame;
  if (wrong) text += ": two replays agree that this was wrong";
  const bool far = difference.weight == Weight::kFar && !wrong;
  return decides || far ? text + ": it may have decided by that" : text;
}

void Recovery::word_sent(uint32_t word, uint64_t value) {
  const std::lock_guard lock(mutex_);
  Word& known = words_[word];
  known.sent = std::max(known.sent, value);
}

void Recovery::word_reached(uint32_t word, uint64_t value) {
  const std::lock_guard lock(mutex_);
  Word& known = words_[word];
  known.reached = std::max(known.reached, value);
}

bool Recovery::word_holds(uint32_t word, uint64_t value) {
  const std::lock_guard lock(mutex_);
  const auto found = words_.find(word);
  return found == words_.end() || found->second.reached >= std::min(value, found->second.sent);
}

}  // namespace pyft::server
