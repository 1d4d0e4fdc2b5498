#include "runner/communicator.h"

namespace flexccl {
namespace {

// PyTorch's watchdog aborts communicators before it ends the process. The script that waits for the
// stream meanwhile must not see what is in memory.
constexpr std::chrono::milliseconds kProcessEnds(1000);  // docs/deadlines.md

}  // namespace

struct Communicator::Queued {
  std::shared_ptr<Communicator> communicator;
  std::uint64_t ticket;
  Task task;
};

std::shared_ptr<Communicator> Communicator::create(const Membership& membership,
                                                   const flexcclStreamTable& streams, int device,
                                                   std::uint64_t position) {
  return std::shared_ptr<Communicator>(
      std::unique_ptr<Communicator>(new Communicator(membership, streams, device, position)));
}

Communicator::Communicator(const Membership& membership, const flexcclStreamTable& streams,
                           int device, std::uint64_t position)
    : streams_(streams),
      device_(device),
      runner_(membership, position),
      ready_(membership.epoch == 0) {
  // A new rank's thread can wait for its first task: the repair is waited for now.
  if (ready_) start_worker();
}

Communicator::~Communicator() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void Communicator::start_worker() {
  if (!streams_.enqueue && !worker_.joinable()) worker_ = std::thread([this] { work(); });
}

void Communicator::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto [ticket, task] = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    in_turn(ticket, task);
  }
}

std::uint64_t Communicator::take_ticket() {
  if (finalized_) fail(ncclInvalidUsage, "flexccl: the communicator is finalized");
  return issued_++;
}

void Communicator::submit(cudaStream_t stream, Task task) {
  // Tickets and streams in the same order: two threads that race here would wait for each other. An
  // operation may run in here at once, and takes the other mutex.
  const std::scoped_lock order(order_);
  std::unique_lock lock(mutex_);
  if (!streams_.enqueue) {
    start_worker();
    queue_.emplace_back(take_ticket(), std::move(task));
    changed_.notify_all();
    return;
  }
  auto queued = std::make_unique<Queued>(shared_from_this(), take_ticket(), std::move(task));
  const auto run = [](void* arg) {
    const std::unique_ptr<Queued> mine(static_cast<Queued*>(arg));
    if (!mine->communicator->in_turn(mine->ticket, mine->task)) mine->communicator->stand();
  };
  const std::uint64_t ticket = queued->ticket;
  lock.unlock();
  if (const int code = streams_.enqueue(device_, stream, run, queued.get()); code == 0) {
    static_cast<void>(queued.release());
    return;
  } else {
    const Error error(ncclUnhandledCudaError, "flexccl: the stream took no host function, error [" +
                                                  std::to_string(code) + "]");
    in_turn(ticket, [&](Communicator&) { throw error; });
    throw error;
  }
}

bool Communicator::in_turn(std::uint64_t ticket, const Task& task) {
  bool runs = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return served_ == ticket || over(); });
    if ((runs = !over())) running_ = true;
  }
  bool done = false;
  try {
    if (runs)
      task(*this), done = true;
    else if (async_error() == ncclSuccess)
      fail(ncclInvalidUsage, "flexccl: the communicator was aborted");
  } catch (const Error& error) {
    record(error);
  } catch (const std::exception& error) {  // such as no memory for what is kept
    record(Error(ncclSystemError, std::string("flexccl: ") + error.what()));
  }
  const std::scoped_lock lock(mutex_);
  if (runs) running_ = false;
  ++served_;
  changed_.notify_all();
  return done;
}

void Communicator::stand() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return goes_on_.has_value(); });
  const auto then = *goes_on_;
  lock.unlock();
  std::this_thread::sleep_until(then);
}

void Communicator::release_streams() {
  const std::scoped_lock lock(mutex_);
  if (!goes_on_) goes_on_ = std::chrono::steady_clock::now() + kProcessEnds;
  changed_.notify_all();
}

void Communicator::run_now(const Task& task) {
  std::uint64_t ticket;
  {
    const std::scoped_lock lock(mutex_);
    ticket = take_ticket();
  }
  in_turn(ticket, task);
  if (const ncclResult_t code = async_error(); code != ncclSuccess)
    throw Error(code, error_sentence());
}

void Communicator::record(const Error& error) {
  // The peers' waits for this rank end now, not at their deadline.
  runner_.close();
  const std::scoped_lock lock(mutex_);
  if (error_ != ncclSuccess)
    return;  // the first one stays, and each thread that has asked has its sentence
  sentence_ = error.what();
  error_.store(error.code, std::memory_order_release);
}

// Streams that stand do not come to what is behind: that it never runs is all there is to wait for.
void Communicator::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, last = issued_] { return over() ? !running_ : served_ >= last; });
}

void Communicator::abort() {
  {
    const std::scoped_lock lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
  runner_.abort();
  synchronize();
  runner_.close();
  runner_.records().close();
  release_streams();
}

void Communicator::add_child(const std::function<Child(const Membership& now)>& make) {
  const std::scoped_lock lock(children_mutex_);
  std::erase_if(children_, [](const Child& child) { return child.communicator.expired(); });
  children_.push_back(make(membership()));
}

std::vector<Communicator::Child> Communicator::children() {
  const std::scoped_lock lock(children_mutex_);
  std::erase_if(children_, [](const Child& child) { return child.communicator.expired(); });
  return children_;
}

void Communicator::finalize() {
  {
    const std::scoped_lock lock(mutex_);
    finalized_ = true;
  }
  synchronize();
}

const char* Communicator::error_sentence() const {
  return async_error() == ncclSuccess ? nullptr : sentence_.c_str();
}

ncclRedOp_t Communicator::add_op(const CustomOp& op) {
  const std::scoped_lock lock(mutex_);
  ops_[next_op_] = op;
  return static_cast<ncclRedOp_t>(next_op_++);
}

void Communicator::remove_op(ncclRedOp_t op) {
  const std::scoped_lock lock(mutex_);
  if (!ops_.erase(op)) fail(ncclInvalidArgument, "flexccl: [", int(op), "] is no created operator");
}

CustomOp Communicator::find_op(ncclRedOp_t op) const {
  const std::scoped_lock lock(mutex_);
  const auto found = ops_.find(op);
  if (found == ops_.end())
    fail(ncclInvalidArgument, "flexccl: [", int(op), "] is no operator of this communicator");
  return found->second;
}

}  // namespace flexccl
