#include "server/dmr/kernels.h"

namespace pyft::server::dmr {

namespace {

using backend::TwiceEnd;

void count(std::atomic<uint64_t>& counter, uint64_t more = 1) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

}  // namespace

Launch::Launch(const EntryHeader& header, Body body, checkpoint::DigestKey key, uint64_t cut,
               bool voted)
    : cut(cut),
      voted(voted),
      seq_(header.seq),
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

Kernels::Kernels(Session& session, backend::ExecuteTwice execute,
                 const SecondExecutions::Options& options, Hears& hears)
    : session_(session), execute_(execute), options_(options), hears_(hears) {}

Status Kernels::perform(const EntryHeader& header, Body body, Body payload, uint64_t cut,
                        bool voted) {
  const auto once = [&](std::atomic<uint64_t>* reason) {
    count(counters().dmr_kernels);
    if (reason) count(*reason);
    return server::perform(session_, header, body, payload);
  };
  cmd::cuLaunchKernel command;
  void* stream = nullptr;
  ring::KernelCounters& kernels = ring::kernel_counters(counters());
  if ((options_.mode == Mode::kNone && !voted) || !execute_) return once(nullptr);
  if (options_.mode == Mode::kIdle && !voted) return once(&kernels.dmr_kernels_later);
  if (session_.open_captures()) return once(&kernels.dmr_kernels_graphs);
  if (counters().shared.load() & ring::kImports) return once(&kernels.dmr_kernels_host);
  if (!read_body(body, &command) || !session_.find_stream(command.stream, &stream))
    return once(nullptr);
  const auto launch = std::make_shared<Launch>(header, body, options_.key, cut, voted);
  execute_(launch.get(), options_.places, options_.memory / 2);  // two journals
  const Status status = server::perform(session_, header, body, payload);
  execute_(nullptr, 0, 0);
  // The device may have the launch all the same.
  if (!status.ok() || session_.on_stream(stream, [this, launch] { follow(*launch); }))
    dropped_.push_back(launch);
  return status;
}

std::atomic<uint64_t>* Kernels::counter_of(TwiceEnd end) {
  ring::KernelCounters& kernels = ring::kernel_counters(counters());
  switch (end) {
    case TwiceEnd::kDone:
    case TwiceEnd::kSecondFailed:
      return &kernels.dmr_kernels_again;
    case TwiceEnd::kOrder:
      return &kernels.dmr_kernels_order;
    case TwiceEnd::kHost:
      return &kernels.dmr_kernels_host;
    case TwiceEnd::kCalls:
      return &kernels.dmr_kernels_calls;
    case TwiceEnd::kClock:
      return &kernels.dmr_kernels_clock;
    case TwiceEnd::kWaits:
      return &kernels.dmr_kernels_waits;
    case TwiceEnd::kRoom:
      return &kernels.dmr_kernels_room;
    case TwiceEnd::kFailed:
      break;
  }
  return nullptr;
}

void Kernels::follow(const Launch& launch) {
  if (!launch.is_compared()) count(counters().dmr_kernels);
  if (auto* const counter = counter_of(launch.end_)) count(*counter);
  count(counters().dmr_again_ns, launch.second_ns_);
  hears_.executed_twice(launch, launch.kernel_);
}

}  // namespace pyft::server::dmr
