#include "checkpoint/snapshot/participant.h"

#include <algorithm>
#include <utility>

#include "pyft/fault.h"
#include "pyft/log.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kLookNs = 1'000'000;

void add(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

Participant::Participant(const Log& log, Store& store, AgentChannel& agent,
                         CommunicatorState& communicators, const Coordination& coordination,
                         const CutUsers& users)
    : log_(log),
      store_(store),
      agent_(agent),
      communicators_(communicators),
      coordination_(coordination),
      users_(users),
      states_(store.has_committed() ? store.committed().manifest.cut : 0) {}

void Participant::tell_last() {
  if (states_.last() > log_.channel.control().snapshot_cut.load()) decided(states_.last(), true);
}

void Participant::begin(const CutFacts& cut, bool full) {
  states_.begin(cut);
  full_ = full;
}

void Participant::perform(const CutActions& todo, const std::string& why) {
  for (const CutAction& action : todo)
    if (!tell(action) && !change_store(action)) tell_users(action, why);
}

bool Participant::is_wanted() {
  if (!wanted_until_ns_ || ring::now_ns() < wanted_until_ns_) return false;
  wanted_until_ns_ = 0;
  return true;
}

bool Participant::is_acknowledged() {
  if (states_.is_acknowledged()) return true;
  const uint64_t now = ring::now_ns();
  if (now < next_look_ns_) return false;
  next_look_ns_ = now + kLookNs;
  if (communicators_.acknowledged(states_.last())) states_.acknowledge();
  return states_.is_acknowledged();
}

// The agent, the client, and the thread that looks whether the cut waits have to know of it.
bool Participant::tell(const CutAction& action) {
  using Do = CutAction::Do;
  switch (action.what) {
    case Do::kStage:
      return stage(action.about), true;
    case Do::kPass:
      return agent_.staged(action.about, 0, 0), true;
    case Do::kPrepare:
      return agent_.prepared(action.about, store_.waiting()->manifest.seq), true;
    case Do::kAsk:
      return agent_.request_decision(action.about), true;
    case Do::kDecide:
      return decided(action.about, action.snapshotted), true;
    case Do::kWait:
      return wait_for_others(), true;
    default:
      return false;
  }
}

bool Participant::change_store(const CutAction& action) {
  using Do = CutAction::Do;
  switch (action.what) {
    case Do::kPromote:
      return promote(), true;
    case Do::kDrop:
      stop_waiting();
      return store_.drop_open(), true;
    case Do::kRelease:
      return log_.recovery.journal().release_before(action.about), true;
    default:
      return false;
  }
}

// That there is none, and why.
void Participant::tell_users(const CutAction& action, const std::string& why) {
  if (action.what == CutAction::Do::kCancel) return cancelled(why);
  PYFT_LOG(kSnapshot, kDebug, "cut [%llu]: skipped", static_cast<unsigned long long>(action.about));
  add(store_.header().skipped, 1);
}

// Says where the digests of the open cut are.
void Participant::stage(uint64_t name) {
  asked_ns_ = ring::now_ns();
  wanted_until_ns_ = full_ ? asked_ns_ + users_.backoff.line_ns() : 0;
  agent_.staged(name, store_.waiting_offset(), states_.cut().seq);
}

// The store and the machine are the dispatch thread's from here on, which may sleep.
void Participant::wait_for_others() {
  next_look_ns_ = 0;
  ring::ControlPage& page = log_.channel.control();
  waits_.store(true, std::memory_order_release);
  page.doorbell.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(page.doorbell);
}

// False: no cut has waited.
bool Participant::stop_waiting() {
  if (!waits_.exchange(false)) return false;
  wanted_until_ns_ = 0;
  return true;
}

// The cut that is whole in the store becomes the committed snapshot. Whose thread the store is.
void Participant::promote() {
  if (stop_waiting()) {
    release_output();
    if (states_.is_compared() && coordination_.is_agreed(states_.asked()))
      add(store_.header().compared_cuts, 1);
  }
  PYFT_FAULT("cut.before_publish");
  store_.promote();
  users_.schedule.committed();
  const ring::Manifest& manifest = store_.committed().manifest;
  PYFT_LOG(kSnapshot, kDebug, "cut [%llu]: committed, [%llu] bytes",
           static_cast<unsigned long long>(manifest.cut),
           static_cast<unsigned long long>(manifest.bytes));
  if (users_.pre_images && manifest.step) expect_pre_images();
  communicators_.published(manifest.cut, manifest.seq);
  store_.header().live_bytes.store(manifest.bytes, std::memory_order_relaxed);
}

void Participant::expect_pre_images() {
  users_.pre_images->expect(store_.committed());
  uint64_t bytes = 0;
  for (const ring::ManifestBlock& block : store_.committed().blocks)
    if (is_remote(block)) bytes += block.bytes;
  if (!bytes || std::exchange(said_pre_images_, true)) return;
  PYFT_LOG(kSnapshot, kWarning,
           "device [%u]: of [%llu] bytes at cut [%llu], [%llu] are kept in GPUs "
           "only: they are lost when all ranks that have them fail at once",
           log_.channel.device(),
           static_cast<unsigned long long>(store_.committed().manifest.bytes),
           static_cast<unsigned long long>(store_.committed().manifest.cut),
           static_cast<unsigned long long>(bytes));
}

// In a replay a cut may be taken that an earlier server has already decided about: numbers only
// grow.
void Participant::decided(uint64_t cut, bool snapshotted) {
  ring::ControlPage& page = log_.channel.control();
  if (snapshotted) page.snapshot_cut.store(cut, std::memory_order_seq_cst);
  page.decided_cut.store(std::max(page.decided_cut.load(), cut), std::memory_order_seq_cst);
  if (!page.decided_waiters.load(std::memory_order_seq_cst)) return;
  page.decided_futex.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(page.decided_futex);
}

void Participant::cancelled(const std::string& why) {
  add(store_.header().cancelled, 1);
  if (std::exchange(said_, true)) return;
  PYFT_LOG(kSnapshot, kWarning, "device [%u]: a cut is not snapshotted: %s", log_.channel.device(),
           why.c_str());
}

}  // namespace pyft::checkpoint
