#include "ring/wait.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "pyft/settings.h"

namespace pyft::ring {

namespace {

std::atomic<bool> forked_child{false};

// Measured on two cores with two programs competing: a round trip of yielding threads takes 2.8 ms
// (the scheduler's slice), one of sleeping threads 10 us.
constexpr uint64_t kLongYieldNs = 500'000;
// Short at first, since while it lasts every call that finds its server asleep pays for waking it
// (2.6 us, 20 times what appending an entry takes), and one program that ran once is no crowd.
constexpr uint64_t kCrowdedNs = 1'000'000, kMostCrowdedNs = 1'000'000'000;
std::atomic<uint64_t> crowded_until{0}, crowded_ns{0};  // CLOCK_MONOTONIC; how long the last time

uint64_t spin_budget_of_this_machine() {
  if (const auto us = settings::spin_us()) return *us * 1000;
  cpu_set_t cpus;
  const int cores = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  // A spinner gives up its core between looks, so even on one core it does not keep the process it
  // waits for from running; what it burns is what others outside could have used.
  return cores <= 2 ? 20'000 : 50'000;
}

// For an agent to end a silent server (10 s), and to have started another one.
constexpr uint64_t kAgentsTimeNs = 20'000'000'000;

uint64_t heartbeat_timeout_ns() {
  return static_cast<uint64_t>(settings::heartbeat_timeout_s() * 1e9);
}

bool hung_up(int fd) {
  pollfd poller{fd, POLLRDHUP, 0};
  return fd >= 0 && poll(&poller, 1, 0) == 1 && (poller.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

// Again soon after the last time: twice as long as that. Threads may get in each other's way here,
// at the price of another length.
void crowded(uint64_t start, uint64_t end) {
  const uint64_t last = crowded_ns.load(std::memory_order_relaxed);
  const bool again = start < crowded_until.load(std::memory_order_relaxed) + last;
  const uint64_t length = again ? std::min(2 * last, kMostCrowdedNs) : kCrowdedNs;
  crowded_ns.store(length, std::memory_order_relaxed);
  crowded_until.store(end + length, std::memory_order_relaxed);
}

const char* reason(WaitStatus status) {
  switch (status) {
    case WaitStatus::kServerDead:
      return "the server ended";
    case WaitStatus::kAgentGone:
      return "the agent is gone";
    case WaitStatus::kHeartbeatStale:
      return "the server has stopped moving";
    case WaitStatus::kForked:
      return "this process is a fork of the one that uses the device";
    case WaitStatus::kTooLarge:
      return "a command is larger than the ring or arena allows";
    case WaitStatus::kEnding:
      return "the session is ending";
    case WaitStatus::kNoMemory:
      return "the machine has no memory left for the log";
    case WaitStatus::kOk:
      break;
  }
  return "all is well";
}

}  // namespace

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t spin_budget_ns() {
  static const uint64_t budget = spin_budget_of_this_machine();
  const uint64_t until = crowded_until.load(std::memory_order_relaxed);
  return until && now_ns() < until ? 0 : budget;
}

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void yield() {
  const uint64_t start = now_ns();
  sched_yield();
  const uint64_t end = now_ns();
  if (end - start > kLongYieldNs) crowded(start, end);
}

void futex_wake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, uint64_t timeout_ns) {
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void wake_server(ControlPage& page, ServerSleep least) {
  const uint32_t sleep = page.server_sleeping.load(std::memory_order_seq_cst);
  const bool rings = least == ServerSleep::kNapping
                         ? sleep != static_cast<uint32_t>(ServerSleep::kAwake)
                         : sleep == static_cast<uint32_t>(ServerSleep::kAsleep);
  // Only one of several writers pays for the wake-up.
  if (!rings || !page.server_sleeping.exchange(0, std::memory_order_seq_cst)) return;
  page.doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(page.doorbell);
}

ClientLiveness::ClientLiveness(const Channel& channel, int agent_fd)
    : channel_(channel),
      agent_fd_(agent_fd),
      created_ns_(now_ns()),
      heartbeat_timeout_ns_(heartbeat_timeout_ns()) {}

WaitStatus ClientLiveness::check() const {
  if (in_forked_child()) return WaitStatus::kForked;
  const ControlPage& page = channel_.control();
  switch (static_cast<ChannelStatus>(page.status.load(std::memory_order_acquire))) {
    case ChannelStatus::kServerDead:
      return WaitStatus::kServerDead;
    case ChannelStatus::kAgentEnding:
      return WaitStatus::kAgentGone;
    case ChannelStatus::kRecovering:  // the agent has a deadline for it (docs/deadlines.md)
      recovered_ns_.store(now_ns(), std::memory_order_relaxed);
      return hung_up(agent_fd_) ? WaitStatus::kAgentGone : WaitStatus::kOk;
    default:
      break;
  }
  if (hung_up(agent_fd_)) return WaitStatus::kAgentGone;
  if (!beat_is_old()) return WaitStatus::kOk;
  // All of the job may have been stopped and continued: then the server beats again in a moment.
  timespec moment{0, 3 * 100'000'000};
  nanosleep(&moment, nullptr);
  return beat_is_old() ? WaitStatus::kHeartbeatStale : WaitStatus::kOk;
}

void ClientLiveness::hurry() const {
  wake_server(channel_.control(), ServerSleep::kNapping);
}

// The agent looks at the same heartbeat. It ends the server and starts another one, for which it
// has some time more.
bool ClientLiveness::beat_is_old() const {
  // No beat yet: the server is still starting, so count from our own start.
  const uint64_t beat = channel_.control().heartbeat_ns.load(std::memory_order_relaxed);
  const uint64_t recovered = recovered_ns_.load(std::memory_order_relaxed), now = now_ns();
  const uint64_t last = std::max(beat ? beat : created_ns_, recovered);
  return now > last && now - last > heartbeat_timeout_ns_ + kAgentsTimeNs;
}

std::string ClientLiveness::sentence(WaitStatus status) const {
  const ControlPage& page = channel_.control();
  char text[sizeof page.status_text + 1] = {};
  if (status == WaitStatus::kServerDead || status == WaitStatus::kAgentGone)
    std::memcpy(text, page.status_text, sizeof page.status_text);
  std::string result = "device [" + std::to_string(channel_.device()) + "] is lost: ";
  result += text[0] ? text : reason(status);
  result += "; server pid [" + std::to_string(page.server_pid) + "], entry [" +
            std::to_string(page.dispatching_seq.load()) + "] was being executed, ring position [" +
            std::to_string(page.consumed.load()) + "] of [" +
            std::to_string(channel_.log().appended.load()) + "]";
  return result;
}

bool in_forked_child() {
  return forked_child.load(std::memory_order_relaxed);
}

void arm_fork_guard() {
  static const int armed = pthread_atfork(nullptr, nullptr, [] { forked_child = true; });
  (void)armed;
}

}  // namespace pyft::ring
