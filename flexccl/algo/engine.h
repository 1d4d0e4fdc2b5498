// Executes schedules for one rank of one communicator: moves bytes without waiting where it can,
// then sleeps until a link changes. Every wait ends: with progress, an error, an abort, or when
// nothing has moved for the deadline.
#ifndef FLEXCCL_ALGO_ENGINE_H_
#define FLEXCCL_ALGO_ENGINE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "algo/schedule.h"
#include "core/error.h"
#include "transport/endpoint.h"

namespace flexccl {

// Who a rank is and how it reaches the others.
struct Membership {
  std::uint64_t comm = 0;
  std::uint32_t epoch = 0;
  Ring ring;
  std::vector<Address> addresses;  // by slot
  Key key;
  flexcclTransport_t transport = flexcclAuto;
  std::uint64_t timeout_ms = 0;
};

class Engine {
 public:
  explicit Engine(const Membership& membership);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws Error; afterwards the links are closed, and the peers see that.
  void run(const Schedule& schedule, std::uint64_t sequence);
  // From any thread: ends a running schedule with ncclInvalidUsage, and all later ones.
  void abort();
  void close();

 private:
  struct Peer;
  void copy(const Schedule& schedule) const;
  void start(const Schedule& schedule);
  bool finished() const;
  bool advance_sends(Peer& peer);
  bool write_frame(Peer& peer, const Send& send);
  bool advance_receives(Peer& peer);
  std::size_t take(Peer& peer, std::span<const std::byte> arrived, const Receive& receive);
  void verify(const Peer& peer, const FrameHeader& header, const Receive& receive) const;
  bool sendable(const Peer& peer) const;
  bool receivable(const Peer& peer) const;
  void wait(std::uint32_t rung, int idle);
  bool poll_sockets();
  void check_peers();
  [[noreturn]] void fail_at(int peer, const Error& error) const;
  [[noreturn]] void fail_stuck() const;
  std::string where() const;

  Membership self_;
  std::shared_ptr<Inbox> inbox_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> busy_;  // those of the running schedule
  std::atomic<bool> aborted_ = false;
  // of the running schedule:
  const Schedule* schedule_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::vector<char> sent_, received_;
};

}  // namespace flexccl

#endif  // FLEXCCL_ALGO_ENGINE_H_
