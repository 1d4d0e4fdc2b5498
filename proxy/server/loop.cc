#include "server/loop.h"

#include <cstring>

#include "pyft/fault.h"

namespace pyft::server {

namespace {
// A client that never pauses must not keep the device from its work.
constexpr uint64_t kEntriesPerPieceOfWork = 256;
}  // namespace

Loop::Loop(Session& session, Dispatch dispatch)
    : session_(session),
      dispatch_(dispatch),
      reader_(session.channel().log_view(), ring::Reader::Mode::kServer,
              session.channel().control().consumed.load()) {}

Loop::End Loop::run() {
  ring::ControlPage& page = session_.channel().control();
  auto starting = static_cast<uint32_t>(ring::ChannelStatus::kStarting);
  page.status.compare_exchange_strong(starting,
                                      static_cast<uint32_t>(ring::ChannelStatus::kServing));
  ring::EntryView entry;
  for (;;) {
    switch (reader_.next(&entry)) {
      case ring::Reader::Next::kEntry: {
        page.dispatching_seq.store(entry.header.seq, std::memory_order_relaxed);
        last_[count_++ % last_.size()] = entry.header;
        const Status status = execute(entry);
        if (!status.ok()) {
          error_ = "entry [" + std::to_string(entry.header.seq) + "]: " + status.text;
          return End::kProtocolError;
        }
        consumed();
        if (count_ % kEntriesPerPieceOfWork == 0) session_.work();
        break;
      }
      case ring::Reader::Next::kEmpty:
        if (goodbye_) return End::kGoodbye;
        if (session_.work()) break;  // one piece, then the ring again
        if (!wait_for_entries()) return End::kAgentGone;
        break;
      case ring::Reader::Next::kDamaged:
        error_ = reader_.error();
        return End::kProtocolError;
    }
  }
}

Status Loop::execute(const ring::EntryView& entry) {
  PYFT_FAULT("server.before_dispatch");
  if (entry.header.call < ring::kFirstCall) return mark(entry);
  return dispatch_(session_, entry.header, entry.body, entry.payload);
}

Status Loop::mark(const ring::EntryView& entry) {
  switch (static_cast<ring::Mark>(entry.header.call)) {
    case ring::Mark::kAlloc:
      ++session_.allocations;
      break;
    case ring::Mark::kFree:
      ++session_.frees;
      break;
    case ring::Mark::kFence:
      return fence(entry);
    case ring::Mark::kGoodbye:
      goodbye_ = true;
      break;
    // Of meaning to replay only.
    case ring::Mark::kPad:
    case ring::Mark::kObserved:
    case ring::Mark::kGate:
    case ring::Mark::kCut:
    case ring::Mark::kCaptureBegin:
    case ring::Mark::kCaptureEnd:
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

void Loop::consumed() {
  ring::ControlPage& page = session_.channel().control();
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
  while (!more()) {
    const uint32_t seen = page.doorbell.load(std::memory_order_seq_cst);
    // Said before the last look at `appended`: a writer that comes later sees it and rings.
    page.server_sleeping.store(1, std::memory_order_seq_cst);
    if (more()) break;
    ring::futex_wait(page.doorbell, seen, ring::kWaitSliceNs);
    if (!more() && session_.liveness().check() != ring::WaitStatus::kOk) return false;
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
