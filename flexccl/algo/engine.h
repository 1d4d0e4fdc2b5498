// Executes schedules for one rank of one communicator: moves bytes without waiting where it can,
// then sleeps until a link changes. Every wait ends: with progress, an error, an abort, or when
// nothing has moved for the deadline.
#ifndef FLEXCCL_ALGO_ENGINE_H_
#define FLEXCCL_ALGO_ENGINE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "algo/schedule.h"
#include "base/error.h"
#include "membership/membership.h"
#include "transport/endpoint.h"

namespace flexccl {

// Thrown by Engine::run() after interrupt(): a repair waits.
struct Interrupted {};

class Engine {
 public:
  // What it asks of its owner, in the thread of run().
  struct Owner {
    // The address of a slot that the membership does not know.
    std::function<Address(int slot)> locate;
    // Whether a repair waits that no doorbell announced. Must be cheap.
    std::function<bool()> news;
    // `slot` is in a later epoch than this rank: finds out what happened.
    std::function<void(int slot, std::uint32_t epoch)> ahead;
    // `slot` is in an earlier one: lets it know.
    std::function<void(int slot)> behind;
    // Whether `slot` has come as far.
    std::function<bool(int slot)> has_taken;
    // Whether `slot` has left for good: what it has not sent by now never comes.
    std::function<bool(int slot)> has_left;
  };

  Engine(std::shared_ptr<const Membership> membership, std::shared_ptr<Responder> responder,
         Owner owner);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws Error, or Interrupted. `sequence`: of the collective; for sends and receives, of the
  // last one that is done.
  void run(const Schedule& schedule, std::uint64_t sequence);
  // Which receives of the last schedule are complete.
  const std::vector<char>& received() const { return received_; }
  // Never while a schedule runs: goes to the epoch of `next`. Links with the slots in `changed`
  // end, all others stay; what is on its way there is dropped at the receiving side.
  void change(std::shared_ptr<const Membership> next, std::span<const int> changed);
  // The last collective that is known to be complete at another slot: every frame tells it.
  std::uint64_t done_at(int slot) const;
  // The slot that the last error was about; -1: none.
  int suspect() const { return suspect_; }
  void forget_suspect() { suspect_ = -1; }

  // From any thread: ends a running schedule with Interrupted,
  void interrupt();
  // or with ncclInvalidUsage, and all later ones.
  void abort();
  // Wakes those that may sleep in an operation with this rank, so that they see the news.
  void ring_peers();
  // Afterwards the peers see that this rank is gone.
  void close();

 private:
  struct Peer;
  void copy(const Schedule& schedule) const;
  void start(const Schedule& schedule);
  Peer& peer_at(int slot);
  void look_up() const;  // throws when there is something more important
  bool finished() const;
  bool advance_sends(Peer& peer);
  bool write_frame(Peer& peer, const Send& send);
  bool connect(Peer& peer);
  bool may_pay(Peer& peer);
  void ask_for_link(Peer& peer);
  bool pay_debt(Peer& peer);
  bool advance_receives(Peer& peer);
  bool drop_stale(Peer& peer, std::span<const std::byte> arrived);
  std::size_t take(Peer& peer, std::span<const std::byte> arrived, const Receive& receive);
  void verify(const Peer& peer, const FrameHeader& header, const Receive& receive) const;
  bool sendable(const Peer& peer) const;
  bool receivable(const Peer& peer) const;
  void wait(std::uint32_t rung, int idle);
  bool poll_sockets();
  void check_peers();
  [[noreturn]] void fail_at(int peer, const Error& error);
  [[noreturn]] void fail_stuck() const;
  std::string where() const;

  std::shared_ptr<const Membership> self_;
  std::shared_ptr<Inbox> inbox_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by slot; null until there is something to say
  std::vector<Peer*> busy_;                   // those of the running schedule
  Owner owner_;
  std::atomic<bool> aborted_ = false, interrupted_ = false;
  int suspect_ = -1;
  bool connecting_ = false;  // this look at all peers has waited for a link
  // of the running schedule:
  const Schedule* schedule_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::vector<char> sent_, received_;
};

}  // namespace flexccl

#endif  // FLEXCCL_ALGO_ENGINE_H_
