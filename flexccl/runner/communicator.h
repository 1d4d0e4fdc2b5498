// One rank's communicator: its engine, the order of its operations, its sticky error.
#ifndef FLEXCCL_RUNNER_COMMUNICATOR_H_
#define FLEXCCL_RUNNER_COMMUNICATOR_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "runner/operation_runner.h"

namespace flexccl {

// Made by ncclRedOpCreatePreMulSum. `device_scalar` is read when the operation runs.
struct CustomOp {
  ncclDataType_t dtype = ncclInt8;
  std::uint64_t scalar = 0;
  const void* device_scalar = nullptr;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Runs when all operations before it are done, unless the communicator has failed by then.
  using Task = std::function<void(Communicator&)>;

  // `position`: collectives that a new rank does not repeat.
  static std::shared_ptr<Communicator> create(const Membership& membership,
                                              const flexcclStreamTable& streams, int device,
                                              std::uint64_t position = 0);
  ~Communicator();

  int device() const { return device_; }

  // As the next operation will find it.
  Membership membership() const { return *view(); }
  std::shared_ptr<const Membership> view() const { return runner_.expected(); }

  // Queues a task; it runs in stream order, or in this communicator's thread.
  void submit(cudaStream_t stream, Task task);
  // Runs a task in the calling thread, after what was submitted before. Throws its error.
  void run_now(const Task& task);
  // For tasks only: runs one collective, or one batch of sends and receives.
  void run(const OperationRunner::Make& make) { runner_.run(make); }
  void run(const std::vector<PointToPoint>& calls) { runner_.run(calls); }
  // For the repair calls.
  OperationRunner& runner() { return runner_; }
  bool ready() const { return ready_; }
  bool replaying() const { return runner_.is_replaying(); }
  void make_ready() { ready_ = true; }

  void synchronize();  // returns when everything submitted so far is done, or never will be
  void abort();
  // The streams of operations that have failed, or came after one, go on, without a result. Until
  // then they stand, as NCCL's do: what is in memory must not be taken for one.
  void release_streams();
  // Later submits throw ncclInvalidUsage.
  void finalize();

  ncclResult_t async_error() const { return error_.load(std::memory_order_acquire); }
  // Stays valid as long as the communicator; null without an error.
  const char* error_sentence() const;

  ncclRedOp_t add_op(const CustomOp& op);
  void remove_op(ncclRedOp_t op);
  CustomOp find_op(ncclRedOp_t op) const;

  // Those that were split or shrunk from this one. `members`: their slots here, in order.
  struct Child {
    std::uint64_t comm = 0;
    std::vector<int> members = {};
    std::weak_ptr<Communicator> communicator = {};
  };
  // Makes one of the membership as it is now; a thread that lists the children afterwards finds it.
  void add_child(const std::function<Child(const Membership& now)>& make);
  std::vector<Child> children();
  // A new rank's, made before the program's call that makes it is repeated: true once.
  bool claim() { return claimable_.exchange(false); }
  void make_claimable() { claimable_ = true; }

 private:
  struct Queued;
  Communicator(const Membership& membership, const flexcclStreamTable& streams, int device,
               std::uint64_t position);
  void start_worker();  // unless it runs, or streams do its work
  void work();
  std::uint64_t take_ticket();
  // Tickets are served in order, whichever threads hold them, until it is over. False: the task has
  // no result, by its own failure or an earlier one.
  bool in_turn(std::uint64_t ticket, const Task& task);
  void record(const Error& error);
  bool over() const { return aborted_ || async_error() != ncclSuccess; }  // no task begins any more
  void stand();  // until after release_streams()

  flexcclStreamTable streams_;
  int device_;  // what streams 0, 1 and 2 belong to
  OperationRunner runner_;
  std::atomic<bool> ready_;  // false: a new rank before ncclCommSetupNewRank
  std::atomic<bool> claimable_ = false;
  std::mutex children_mutex_;
  std::vector<Child> children_;

  std::mutex order_;  // of what is submitted
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t issued_ = 0, served_ = 0;
  bool finalized_ = false, stopping_ = false, aborted_ = false, running_ = false;
  std::optional<std::chrono::steady_clock::time_point> goes_on_;  // streams that stand
  std::deque<std::pair<std::uint64_t, Task>> queue_;              // the worker's
  std::map<int, CustomOp> ops_;
  int next_op_ = ncclNumOps;
  std::string sentence_;
  std::atomic<ncclResult_t> error_ = ncclSuccess;
  std::thread worker_;  // without a stream table
};

}  // namespace flexccl

#endif  // FLEXCCL_RUNNER_COMMUNICATOR_H_
