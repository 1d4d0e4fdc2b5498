// Waiting across processes: spin briefly, then sleep on a futex in slices, and look after every
// slice whether the other side is still there. No wait exists without this look: docs/deadlines.md.
#ifndef PYFT_RING_WAIT_H_
#define PYFT_RING_WAIT_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "ring/channel.h"

namespace pyft::ring {

enum class WaitStatus : uint8_t {
  kOk = 0,
  kServerDead,      // the agent says so (ControlPage.status)
  kAgentGone,       // the agent's connection ended, or it is ending
  kHeartbeatStale,  // for PYFT_HEARTBEAT_TIMEOUT_S and 20 s more: the agent has not acted
  kForked,          // this process is a fork of the client: the channel is not its own
  kTooLarge,        // the entry can never fit the ring or the arena
  kEnding,          // server: the client or agent is gone; client: it has said goodbye
  kNoMemory,        // the machine has none left for the ring or the arena
};

uint64_t now_ns();          // CLOCK_MONOTONIC
uint64_t spin_budget_ns();  // from the number of cores; 0 while the machine is crowded: yield()
void cpu_relax();
// Lets another thread that waits for this core run. If that one keeps the core for long, programs
// outside compete for it, and a sleeper that is woken gets it back sooner than one that yields:
// then spin_budget_ns() is 0 for a while.
void yield();
// Wakes all sleepers on a word of shared memory.
void futex_wake(const std::atomic<uint32_t>& word);
// Sleeps while word == seen, at most `timeout_ns`.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, uint64_t timeout_ns);

inline constexpr uint64_t kWaitSliceNs = 100'000'000;

// ControlPage.server_sleeping: which thread has to ring the doorbell. A server that has nothing to
// do naps a few times before it sleeps. A program that launches one small kernel after the other
// would else pay for waking it each time (2.6 us); a thread that waits for its work wakes it from a
// nap too.
enum class ServerSleep : uint32_t {
  kAwake = 0,
  kAsleep = 1,   // every writer rings
  kNapping = 2,  // only a thread that waits
};
// Clears the word and wakes the server if it sleeps as deeply as that.
void wake_server(ControlPage& page, ServerSleep least);

// Looks whether waiting still makes sense. Thread-safe; cheap enough for every slice.
class Liveness {
 public:
  virtual ~Liveness() = default;
  virtual WaitStatus check() const = 0;
  // Before a wait: the server that is waited for may be napping.
  virtual void hurry() const {}
};

// The client's look at server and agent.
class ClientLiveness : public Liveness {
 public:
  // `agent_fd`: the attach connection, or -1 (tests). The channel must outlive this.
  ClientLiveness(const Channel& channel, int agent_fd);
  WaitStatus check() const override;
  void hurry() const override;
  // One sentence for stderr naming device, server pid, reason and ring position.
  std::string sentence(WaitStatus status) const;

 private:
  bool beat_is_old() const;
  const Channel& channel_;
  int agent_fd_;
  uint64_t created_ns_;
  mutable std::atomic<uint64_t> recovered_ns_{0};  // a new server has been on its way then
  uint64_t heartbeat_timeout_ns_;
};

// Looks for at most the spin budget whether ready() holds; at least once. Gives up the core now and
// then: on a machine with few cores the thread it waits for may be the one that needs it.
template <class Ready>
bool spin_until(Ready&& ready) {
  constexpr int kLooksPerYield = 16;
  if (ready()) return true;
  const uint64_t budget = spin_budget_ns();
  for (const uint64_t end = budget ? now_ns() + budget : 0; end && now_ns() < end; yield())
    for (int look = 0; look < kLooksPerYield; ++look, cpu_relax())
      if (ready()) return true;
  return false;
}

// Waits until ready() is true. `waiters`, when given, counts sleepers so that the other side can
// save its wake-up call; it must look at it after a sequentially consistent fence.
template <class Ready>
WaitStatus wait_until(const std::atomic<uint32_t>& futex, std::atomic<uint32_t>* waiters,
                      const Liveness& liveness, Ready&& ready) {
  if (ready()) return WaitStatus::kOk;
  liveness.hurry();
  if (spin_until(ready)) return WaitStatus::kOk;
  WaitStatus status = WaitStatus::kOk;
  if (waiters) waiters->fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t seen = futex.load(std::memory_order_seq_cst);
    if (ready()) break;
    futex_wait(futex, seen, kWaitSliceNs);
    if (ready()) break;
    if ((status = liveness.check()) != WaitStatus::kOk) break;
  }
  if (waiters) waiters->fetch_sub(1, std::memory_order_relaxed);
  return status;
}

// True in a child forked after the first channel was attached (pthread_atfork).
bool in_forked_child();
void arm_fork_guard();  // called by Writer; idempotent

}  // namespace pyft::ring

#endif  // PYFT_RING_WAIT_H_
