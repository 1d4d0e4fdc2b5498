#include "server/loop.h"

#include <sys/prctl.h>
#include <time.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "checkpoint/device.h"
#include "pyft/fault.h"
#include "pyft/log.h"
#include "pyft/settings.h"
#include "ring/object_log.h"

namespace pyft::server {

namespace {
// A client that never pauses must not keep the device from its work.
constexpr uint64_t kEntriesPerPieceOfWork = 256;
// What a kernel may start later for (nothing waits for it), against what its launch costs.
constexpr uint64_t kNapNs = 50'000;
constexpr int kNaps = 8;
}  // namespace

Loop::Loop(Session& session, Dispatch dispatch, uint64_t start)
    : session_(session),
      dispatch_(dispatch),
      reader_(session.channel().log_view(), ring::Reader::Mode::kServer, start) {
  read_kill_places(settings::kill_at(), &kill_places_);  // main() has refused what is wrong
}

Loop::Loop(Session& session, Dispatch dispatch)
    : Loop(session, dispatch, session.channel().control().consumed.load()) {}

Loop::End Loop::run() {
  prctl(PR_SET_TIMERSLACK, 1000);  // of this thread: a nap is as long as said, not twice that
  ring::ControlPage& page = session_.channel().control();
  session_.recovery().begin_replay(reader_.position());
  consumed();  // the committed snapshot may lie after what an earlier server has told of
  ring::EntryView entry;
  for (;;) {
    switch (reader_.next(&entry)) {
      case ring::Reader::Next::kEntry: {
        page.dispatching_seq.store(entry.header.seq, std::memory_order_relaxed);
        last_[count_++ % last_.size()] = entry.header;
        kill_if_asked(entry);
        PYFT_LOG(kServer, kTrace, "entry [%llu]: call [%u], thread [%u]",
                 static_cast<unsigned long long>(entry.header.seq), unsigned{entry.header.call},
                 unsigned{entry.header.thread});
        if (hooks_) hooks_->before(entry);
        const Status status = execute(entry);
        if (!status.ok()) {
          error_ = "entry [" + std::to_string(entry.header.seq) + "]: " + status.text;
          return End::kProtocolError;
        }
        if (session_.recovery().replaying()) replayed();
        consumed();
        if (hooks_) hooks_->turn();
        if (count_ % kEntriesPerPieceOfWork == 0) session_.work();
        break;
      }
      case ring::Reader::Next::kEmpty:
        if (goodbye_) return End::kGoodbye;
        if (session_.work()) break;  // one piece, then the ring again
        if (hooks_) hooks_->turn();
        if (!wait_for_entries()) return End::kAgentGone;
        break;
      case ring::Reader::Next::kDamaged:
        error_ = reader_.error();
        return End::kProtocolError;
    }
  }
}

// After each entry of a replay. In serial mode an error of the device belongs to its entry.
void Loop::replayed() {
  checkpoint::Recovery& recovery = session_.recovery();
  if (recovery.mode() == ring::ReplayMode::kSerial) {
    finish_entry();
    session_.check_device(session_.device_status(), "the GPU");
  }
  if (!recovery.replayed(reader_.position())) return;
  // A copy that the dead server had finished needs no more than the entries before it: so the
  // device comes to it. Nothing new is handed out before all is compared.
  work_until([&] { return !recovery.comparing(); });
  recovery.go_live(reader_.position());
}

template <class Done>
void Loop::work_until(Done done) {
  while (!done() && !session_.sticky()) {
    if (session_.work()) continue;
    const timespec moment{0, 50'000};
    nanosleep(&moment, nullptr);
    if (session_.liveness().check() != ring::WaitStatus::kOk) break;
  }
}

// An operation that waits for other ranks is not waited for: they may need what comes next.
void Loop::finish_entry() {
  while (session_.work()) continue;
  if (!hooks_ || session_.works()) return;
  work_until([&] { return session_.device_waits() || hooks_->device() != checkpoint::kNotReady; });
}

// A test ends this process at such a place, if it is this rank's. How far it came is in the page,
// should it never come there.
void Loop::kill_if_asked(const ring::EntryView& entry) {
  if (kill_places_.empty()) [[likely]]
    return;
  ring::ControlPage& page = session_.channel().control();
  page.kill_cuts.store(cuts_seen_, std::memory_order_relaxed);
  page.kill_entries.store(++entries_since_cut_, std::memory_order_relaxed);
  for (const KillPlace& place : kill_places_) {
    if (place.rank && *place.rank != page.rank.load()) continue;
    if (cuts_seen_ != place.cut) continue;
    page.kill_step_entries.store(entries_since_cut_, std::memory_order_relaxed);
    if (entries_since_cut_ != place.entry) continue;
    if (place.note) page.fault_notes[*place.note].store(1);
    // The report counts from the last sign of life.
    page.heartbeat_ns.store(ring::now_ns());
    std::raise(SIGKILL);
  }
  if (entry.header.call != static_cast<uint16_t>(ring::Mark::kCut)) return;
  ++cuts_seen_;
  entries_since_cut_ = 0;
}

Status Loop::execute(const ring::EntryView& entry) {
  PYFT_FAULT("server.before_dispatch");
  if (entry.header.call < ring::kFirstCall) return mark(entry);
  if (ring::is_refused(entry.header, entry.body)) return Status::good();  // in a replay
  return dispatch_(session_, entry.header, entry.body, entry.payload);
}

Status Loop::mark(const ring::EntryView& entry) {
  switch (static_cast<ring::Mark>(entry.header.call)) {
    case ring::Mark::kFence:
      return fence(entry);
    case ring::Mark::kGoodbye:
      goodbye_ = true;
      break;
    case ring::Mark::kObserved:
      return observed(entry);
    case ring::Mark::kGate:
      if (hooks_) hooks_->gate();
      break;
    case ring::Mark::kCut:
      return cut(entry);
    case ring::Mark::kPad:
    case ring::Mark::kAlloc:
    case ring::Mark::kFree:
      break;
  }
  return Status::good();
}

Status Loop::fence(const ring::EntryView& entry) {
  ring::FenceMark body;
  if (entry.body.size() < sizeof body) return Status::broken("the fence is too short");
  std::memcpy(&body, entry.body.data(), sizeof body);
  void* stream = nullptr;
  if (!session_.find_stream(body.stream, &stream))
    return Status::broken("a fence names stream [" + std::to_string(body.stream) +
                          "], which does not exist");
  return session_.publish_on_stream(stream, body.word, body.value);
}

// What the client has seen when it appended the next entries must hold again before they run
// (A4). It did hold, with nothing but the entries before: so it will. Behind the replay too, as it
// may have been an earlier server's word; then other ranks may need the hooks' turn for that.
Status Loop::observed(const ring::EntryView& entry) {
  if (settings::ignore_observed()) return Status::good();
  ring::ObservedMark body;
  if (entry.body.size() < sizeof body) return Status::broken("an observation is too short");
  std::memcpy(&body, entry.body.data(), sizeof body);
  if (body.word >= ring::kCompletionWords)
    return Status::broken("completion word [" + std::to_string(body.word) + "] is out of range");
  work_until([&] {
    if (session_.recovery().words().holds(body.word, body.value)) return true;
    if (hooks_ && !session_.recovery().replaying()) hooks_->turn();
    return false;
  });
  return Status::good();
}

Status Loop::cut(const ring::EntryView& entry) {
  ring::ControlPage& page = session_.channel().control();
  ring::CutMark body;
  if (entry.body.size() < sizeof body) return Status::broken("a cut is too short");
  std::memcpy(&body, entry.body.data(), sizeof body);
  PYFT_LOG(kSnapshot, kDebug, "cut [%llu] at entry [%llu]%s",
           static_cast<unsigned long long>(body.number),
           static_cast<unsigned long long>(entry.header.seq), body.forced ? ", forced" : "");
  if (!hooks_ || body.number <= page.decided_cut.load()) return Status::good();
  if (session_.recovery().replaying()) {
    // What another replay has to tell of must not become the point that this one would start from.
    work_until([&] { return !session_.recovery().comparing(); });
    session_.recovery().settle();
  }
  hooks_->cut(entry, body);
  return Status::good();
}

void Loop::consumed() {
  ring::ControlPage& page = session_.channel().control();
  if (reader_.position() <= page.consumed.load(std::memory_order_relaxed)) return;  // a replay
  // Sequentially consistent with the waiter's count-then-look: see wait_until().
  page.consumed.store(reader_.position(), std::memory_order_seq_cst);
  if (!page.consumed_waiters.load(std::memory_order_seq_cst)) return;
  page.consumed_futex.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(page.consumed_futex);
}

bool Loop::wait_for_entries() {
  ring::ControlPage& page = session_.channel().control();
  const ring::LogHeader& log = *session_.channel().log_view().header;
  const uint64_t position = reader_.position();
  const auto more = [&] { return log.appended.load(std::memory_order_seq_cst) != position; };
  if (ring::spin_until(more)) return true;
  if (hooks_) hooks_->idle();
  for (int naps = 0; !more(); ++naps) {
    const bool nap = naps < kNaps;
    const uint32_t seen = page.doorbell.load(std::memory_order_seq_cst);
    // Said before the last look at `appended`: a writer that comes later sees it.
    const auto how = nap ? ring::ServerSleep::kNapping : ring::ServerSleep::kAsleep;
    page.server_sleeping.store(static_cast<uint32_t>(how), std::memory_order_seq_cst);
    if (more()) break;
    ring::futex_wait(page.doorbell, seen, nap ? kNapNs : ring::kWaitSliceNs);
    if (hooks_) hooks_->turn();
    if (!nap && !more() && session_.liveness().check() != ring::WaitStatus::kOk) return false;
  }
  page.server_sleeping.store(0, std::memory_order_relaxed);
  return true;
}

std::vector<ring::EntryHeader> Loop::last_entries() const {
  std::vector<ring::EntryHeader> result;
  const uint64_t kept = count_ < last_.size() ? count_ : last_.size();
  for (uint64_t i = count_ - kept; i < count_; ++i) result.push_back(last_[i % last_.size()]);
  return result;
}

}  // namespace pyft::server
