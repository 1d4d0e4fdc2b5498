#include "server/dmr/kernels.h"

#include <utility>

#include "ring/wait.h"

namespace pyft::server::dmr {

namespace {

using backend::TwiceEnd;

void count(std::atomic<uint64_t>& counter, uint64_t more = 1) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

// What a launch of a kernel is known by: not its parameters, in which left-over bytes lie.
Digest kind_of(const cmd::cuLaunchKernel& c, checkpoint::DigestKey key) {
  cmd::cuLaunchKernel kind = c;
  kind.stream = 0;
  return checkpoint::digest(&kind, sizeof kind, key);
}

}  // namespace

Launch::Launch(const EntryHeader& header, Body body, checkpoint::DigestKey key)
    : seq_(header.seq),
      key_(key),
      arguments_(checkpoint::digest(body.data(), body.size(), key)),
      first_(key),
      second_(key) {}

void Launch::wrote(bool again, uint64_t address, uint64_t bytes) {
  const struct {
    uint64_t address, bytes;
    Digest contents;
  } piece{address, bytes, checkpoint::digest(reinterpret_cast<const void*>(address), bytes, key_)};
  (again ? second_ : first_).add(&piece, sizeof piece);
}

void Launch::ended(TwiceEnd end, const char* kernel, uint64_t first_ns, uint64_t second_ns) {
  end_ = end;
  kernel_ = kernel;
  first_ns_ = first_ns;
  second_ns_ = second_ns;
}

// One that has failed has written nothing that counts: no execution that has not can be like it.
Digest Launch::outputs(bool again) const {
  if (again && end_ == TwiceEnd::kSecondFailed) return checkpoint::digest("failed", 6, key_);
  return (again ? second_ : first_).digest();
}

Kernels::Kernels(Session& session, backend::ExecuteTwice execute, Rotation& rotation,
                 const SecondExecutions::Options& options, Hears& hears)
    : session_(session), execute_(execute), rotation_(rotation), options_(options), hears_(hears) {}

Status Kernels::perform(const EntryHeader& header, Body body, Body payload, uint64_t cut,
                        bool voted) {
  const auto plainly = [&] { return server::perform(session_, header, body, payload); };
  cmd::cuLaunchKernel command;
  void* stream = nullptr;
  const bool idles = options_.mode == Mode::kNone && !voted;
  if (idles || !execute_ || !read_body(body, &command) ||
      !session_.find_stream(command.stream, &stream)) {
    count(counters().dmr_kernels);
    return plainly();
  }
  if (session_.open_captures()) return left_out(of_kernels().dmr_kernels_graphs), plainly();
  if (counters().shared.load() & ring::kImports)  // others write what it may read
    return left_out(of_kernels().dmr_kernels_host), plainly();
  const auto launch = std::make_shared<Launch>(header, body, options_.key);
  launch->cut = cut;
  launch->voted = voted;
  if (!is_turn(command, launch.get())) {
    left_out(of_kernels().dmr_kernels_later);
    return time_it(header, body, payload, launch->name, stream);
  }
  execute_(launch.get(), options_.places, options_.memory / 2);  // two are kept
  const Status status = plainly();
  execute_(nullptr, 0, 0);
  if (status.ok()) session_.on_stream(stream, [this, launch] { follow(*launch); });
  return status;
}

bool Kernels::is_turn(const cmd::cuLaunchKernel& command, Launch* launch) {
  launch->interval = rotation_.interval();
  launch->name = rotation_.next(kind_of(command, options_.key));
  if (launch->voted || options_.mode == Mode::kFull) return true;
  // A replay has no time for those that the program was told nothing of.
  return !session_.recovery().replaying() && rotation_.turn(launch->name) == Rotation::Turn::kNow;
}

// Once: whose turn it is follows from what each takes.
Status Kernels::time_it(const EntryHeader& header, Body body, Body payload, Rotation::Name name,
                        void* stream) {
  const auto plainly = [&] { return server::perform(session_, header, body, payload); };
  if (rotation_.has_cost(name)) return plainly();
  const auto begun = std::make_shared<uint64_t>(0);
  if (session_.on_stream(stream, [begun] { *begun = ring::now_ns(); })) return plainly();
  const Status status = plainly();
  const auto end = [this, name, begun] { rotation_.cost(name, ring::now_ns() - *begun); };
  if (status.ok()) session_.on_stream(stream, end);
  return status;
}

void Kernels::left_out(std::atomic<uint64_t>& reason) {
  count(counters().dmr_kernels);
  count(reason);
}

// One that cannot be compared has had its turn as well.
void Kernels::follow(const Launch& launch) {
  ring::KernelCounters& kernels = of_kernels();
  rotation_.cost(launch.name, launch.first_ns_);
  rotation_.spent(launch.second_ns_);
  rotation_.covered(launch.name, launch.interval);
  count(counters().dmr_again_ns, launch.second_ns_);
  switch (launch.end_) {
    case TwiceEnd::kDone:
    case TwiceEnd::kSecondFailed:
      count(kernels.dmr_kernels_again);
      break;
    case TwiceEnd::kOrder:
      left_out(kernels.dmr_kernels_order);
      break;
    case TwiceEnd::kHost:
      left_out(kernels.dmr_kernels_host);
      break;
    case TwiceEnd::kCalls:
      left_out(kernels.dmr_kernels_calls);
      break;
    case TwiceEnd::kClock:
      left_out(kernels.dmr_kernels_clock);
      break;
    case TwiceEnd::kWaits:
      left_out(kernels.dmr_kernels_waits);
      break;
    case TwiceEnd::kRoom:
      left_out(kernels.dmr_kernels_room);
      break;
    case TwiceEnd::kFailed:
      break;
  }
  hears_.executed_twice(launch, launch.kernel_);
}

}  // namespace pyft::server::dmr
