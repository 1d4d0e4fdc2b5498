#include "server/auditor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "ring/wait.h"

namespace pyft::server {

namespace {

using checkpoint::kNotReady;
constexpr uint64_t kStillNs = 60'000'000'000;  // docs/deadlines.md
constexpr size_t kMostText = 400;

}  // namespace

Auditor::Auditor(Session& session, const checkpoint::Store& store, checkpoint::Device device,
                 AgentLink& agent, uint64_t entry)
    : session_(session),
      store_(store),
      device_(device),
      agent_(agent),
      entry_(entry),
      findings_(store.digest_key()) {
  session.recovery().audit(&findings_);
}

std::string Auditor::lacks() const {
  if (!store_.has_committed()) return "there is no snapshot from which an audit could begin";
  if (!store_.unfinished() || store_.unfinished()->manifest.seq != entry_)
    return "no cut of entry [" + std::to_string(entry_) + "] waits";
  return device_.memory.views() ? "" : "the device's memory cannot be looked at";
}

void Auditor::before(const ring::EntryView& next) {
  if (next.header.seq < entry_) return;
  if (next.header.seq > entry_ || next.header.call != static_cast<uint16_t>(ring::Mark::kCut))
    fail("entry [" + std::to_string(next.header.seq) + "] is not the cut");
  finish();
}

// What the streams were given before the cut, with all comparisons of what was handed out.
std::string Auditor::await_device() {
  uint64_t seen = device_.state.progress(), deadline = ring::now_ns() + kStillNs;
  for (;;) {
    bool moved = false;
    while (device_.state.work()) moved = true;
    const int code = device_.state.idle();
    if (code == 0 && !session_.recovery().comparing()) return {};
    if (code != 0 && code != kNotReady)
      return "the device fails with code [" + std::to_string(code) + "]";
    const uint64_t progress = device_.state.progress();
    if (moved || progress != seen) deadline = ring::now_ns() + kStillNs;
    seen = progress;
    if (ring::now_ns() > deadline) return "a stream does not come to its end";
    usleep(50);
  }
}

void Auditor::finish() {
  if (const std::string why = await_device(); !why.empty()) fail(why);
  if (const std::string why =
          findings_.compare(store_.committed(), *store_.unfinished(), device_.memory);
      !why.empty())
    fail(why);
  if (!findings_.differing() && !findings_.doubt().empty()) fail(findings_.doubt(), kCannotTell);
  const auto most = [](uint64_t count) {
    return static_cast<uint32_t>(std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max()));
  };
  const ring::Digest evidence = findings_.evidence();
  const std::string text = findings_.first().substr(0, kMostText);
  std::vector<std::byte> payload(sizeof evidence + text.size());
  std::memcpy(payload.data(), &evidence, sizeof evidence);
  std::memcpy(payload.data() + sizeof evidence, text.data(), text.size());
  agent_.send(msg::Audited{.entry = entry_,
                           .differing = most(findings_.differing()),
                           .fresh = most(findings_.fresh()),
                           .bytes = findings_.bytes()},
              payload);
  std::fflush(nullptr);
  _exit(0);
}

void Auditor::fail(const std::string& why, int code) {
  session_.recovery().fail(ring::FaultKind::kUnrecoverable, code, "the audit cannot go on: " + why,
                           entry_);
}

void replay_all(ring::ControlPage& page) {
  page.consumed = std::numeric_limits<uint64_t>::max();
  page.replay_mode = static_cast<uint32_t>(ring::ReplayMode::kNormal);
  page.fault_kind = 0;
}

}  // namespace pyft::server
