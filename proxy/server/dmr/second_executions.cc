#include "server/dmr/second_executions.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "pyft/log.h"
#include "ring/wait.h"

namespace pyft::server::dmr {

namespace {

using When = Second::When;

constexpr size_t kMostQueued = 4096;
constexpr uint64_t kStalledNs = 10'000'000'000;

void count(std::atomic<uint64_t>& counter, uint64_t more = 1) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

bool same(const Range& a, const Range& b) {
  return std::tie(a.address, a.bytes, a.columns, a.pitch, a.slices, a.stride) ==
         std::tie(b.address, b.bytes, b.columns, b.pitch, b.slices, b.stride);
}

// Bytes between the first and the last of both, which may be others' in part.
bool touch(const Range& a, const Range& b) {
  return a.address < b.address + b.extent() && b.address < a.address + a.extent();
}

// Room for a range at the same place in its line of memory: a library chooses by alignment.
uint64_t room_for(uint64_t address, uint64_t bytes) {
  constexpr uint64_t kAlign = ShadowMemory::kAlign;
  return (address % kAlign + bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

SecondExecutions::SecondExecutions(Session& session, View view, ExecuteAgain again,
                                   const Options& options, Hears& hears)
    : session_(session),
      view_(view),
      execute_again_(again),
      options_(options),
      hears_(hears),
      rotation_({options.mode == Mode::kFull, options.share}),
      again_(session.backend()),
      memory_(
          std::make_shared<ShadowMemory>(session.backend(), options.memory, session.ordinal())) {}

void SecondExecutions::plan(const std::shared_ptr<Execution>& execution, Body body, bool voted) {
  Execution& e = *execution;
  e.interval = rotation_.interval();
  e.name = rotation_.next(
      checkpoint::digest(e.product.arguments.data(), e.product.arguments.size(), options_.key));
  When& when = e.second.when;
  when = this->when(e, voted);
  if (when != When::kNever) e.body.assign(body.begin(), body.end());
  if (when == When::kKept && !place(&e)) when = When::kNow;
  if (when == When::kNow && !place(&e)) {
    when = When::kNever;
    count(counters().dmr_no_room);
  }
}

// A replay has no time to wait in; what it executes is compared with what the program was told.
When SecondExecutions::when(const Execution& e, bool voted) {
  if (voted) return When::kNow;
  if (options_.mode == Mode::kNone) return When::kNever;
  const Rotation::Turn turn = rotation_.turn(e.name);
  if (turn == Rotation::Turn::kPair) return When::kNever;
  if (options_.mode == Mode::kFull) return When::kNow;
  const auto overwritten = [&](const Range& input) { return touch(input, e.product.output); };
  const auto* const inputs = e.product.inputs.data();
  if (!session_.recovery().replaying()) {
    if (turn == Rotation::Turn::kNow) return When::kKept;
    if (std::none_of(inputs, inputs + e.product.input_count, overwritten)) return When::kIfIdle;
  }
  count(counters().dmr_later);
  return When::kNever;
}

// What the first execution writes over is copied, of what is kept for later everything is. False:
// there is no room.
bool SecondExecutions::place(Execution* execution) {
  const Product& product = execution->product;
  Second& second = execution->second;
  const bool all = second.when != When::kNow;
  const uint64_t workspace = workspace_bytes(execution->header, execution->body);
  const uint64_t output = room_for(product.output.address, product.output.extent());
  uint64_t bytes = output + room_for(0, workspace);
  for (size_t i = 0; i < product.input_count; ++i) {
    const Range& input = product.inputs[i];
    second.copied[i] = all || touch(input, product.output);
    if (second.copied[i] && !same(input, product.output))
      bytes += room_for(input.address, input.extent());
  }
  if (all) {
    second.piece = memory_->take(bytes);
  } else {
    auto& piece = of_stream_[product.stream];
    if (!piece || piece->bytes() < bytes) piece = memory_->take(bytes);
    second.piece = piece;
  }
  if (!second.piece) return false;
  second.places = places_of(product);
  uint64_t at = second.piece->address();
  const auto next = [&at](uint64_t address, uint64_t extent) {
    const uint64_t place = at + address % ShadowMemory::kAlign;
    at += room_for(address, extent);
    return place;
  };
  second.places.output = next(product.output.address, product.output.extent());
  if (workspace) second.places.workspace = next(0, workspace);
  for (size_t i = 0; i < product.input_count; ++i) {
    const Range& input = product.inputs[i];
    if (!second.copied[i]) continue;
    second.places.inputs[i] =
        same(input, product.output) ? second.places.output : next(input.address, input.extent());
  }
  return true;
}

void SecondExecutions::before(const Execution& execution) {
  const Second& second = execution.second;
  if (!second.piece) return;
  const uint64_t begin = ring::now_ns();
  for (size_t i = 0; i < execution.product.input_count; ++i) {
    const Range& input = execution.product.inputs[i];
    if (second.copied[i])
      std::memcpy(reinterpret_cast<void*>(second.places.inputs[i]),
                  reinterpret_cast<const void*>(input.address), input.extent());
  }
  const uint64_t ns = ring::now_ns() - begin;
  count(counters().dmr_again_ns, ns);
  rotation_.spent(ns);
}

void SecondExecutions::follow(const std::shared_ptr<Execution>& execution, CUstream stream) {
  const When when = execution->second.when;
  if (when == When::kNever) return;
  if (when == When::kNow) return static_cast<void>(put_on(execution, stream, false));
  if (queue_.size() < kMostQueued) return queue_.push_back(execution);
  count(counters().dmr_later);
}

bool SecondExecutions::put_on(const std::shared_ptr<Execution>& execution, CUstream stream,
                              bool in_window) {
  const auto begun = std::make_shared<uint64_t>(0);
  const auto begin = [begun] { *begun = ring::now_ns(); };
  const Execution& e = *execution;
  bool taken = !session_.on_stream(stream, begin);
  if (taken) {
    if (execute_again_) execute_again_(1, options_.places);
    taken = !again_.execute(e.header, e.body, e.product, e.second.places, stream);
    if (execute_again_) execute_again_(0, 0);
  }
  const auto end = [this, execution, begun, in_window] {
    compare(execution.get(), *begun, in_window);
  };
  taken = taken && !session_.on_stream(stream, end);
  if (!taken) count(counters().dmr_refused);
  return taken;
}

void SecondExecutions::compare(Execution* execution, uint64_t begun_ns, bool in_window) {
  const Digest outputs =
      digest_of(execution->product.output, execution->second.places.output, options_.key);
  const uint64_t ns = ring::now_ns() - begun_ns;
  count(in_window ? counters().dmr_window_again_ns : counters().dmr_again_ns, ns);
  if (!in_window) rotation_.spent(ns);
  count(counters().dmr_again);
  hears_.executed_again(*execution, outputs);
  execution->second.compared.store(true, std::memory_order_release);
}

bool SecondExecutions::may_use_windows() {
  return options_.mode == Mode::kIdle && !closed_ && !session_.recovery().replaying() &&
         !session_.open_captures() && !session_.sticky();
}

// Something that the device could begin with: it comes first.
bool SecondExecutions::has_entries() {
  return session_.channel().log_view().header->appended.load() !=
         session_.channel().control().consumed.load();
}

void SecondExecutions::window() {
  if (!may_use_windows()) return;
  window_ns_ = ring::now_ns();
  const auto create = session_.backend().cuStreamCreateWithPriority;
  if (!stream_ && (!create || create(&stream_, CU_STREAM_NON_BLOCKING, 0))) {
    closed_ = true;
    return;
  }
  while (!closed_ && !has_entries()) {
    const std::shared_ptr<Execution> one = next();
    if (!one) return;
    run(one);
  }
}

void SecondExecutions::end_window() {
  if (!window_ns_) return;
  count(counters().dmr_window_ns, ring::now_ns() - window_ns_);
  window_ns_ = 0;
}

// Those whose turn it is, then those that were covered the longest ago; of them the youngest, since
// what it reads is the likeliest to be there still.
std::shared_ptr<Execution> SecondExecutions::next() {
  std::erase_if(queue_,
                [this](const auto& one) { return rotation_.is_covered(one->name, one->interval); });
  auto best = queue_.end();
  std::pair<bool, uint64_t> most;
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if (!(*it)->done.load(std::memory_order_acquire)) continue;
    const std::pair rank((*it)->second.when == When::kKept, rotation_.age((*it)->name));
    if (best != queue_.end() && rank < most) continue;
    best = it;
    most = rank;
  }
  if (best == queue_.end()) return nullptr;
  std::shared_ptr<Execution> found = std::move(*best);
  queue_.erase(best);
  return found;
}

void SecondExecutions::run(const std::shared_ptr<Execution>& execution) {
  if (!execution->second.piece && !take_copies(execution)) return;
  if (put_on(execution, stream_, true))
    work_until([&] { return execution->second.compared.load(std::memory_order_acquire); });
}

// False: it cannot be executed again. Copies are what is digested: memory that changes meanwhile
// cannot make a difference.
bool SecondExecutions::take_copies(const std::shared_ptr<Execution>& execution) {
  if (!place(execution.get())) {
    count(counters().dmr_no_room);
    return false;
  }
  enum State { kOpen, kEqual, kOther };
  const auto state = std::make_shared<std::atomic<int>>(kOpen);
  const auto look = [this, execution, state] {
    const Product& product = execution->product;
    const Places& places = execution->second.places;
    const uint64_t begin = ring::now_ns();
    bool there = true;
    for (size_t i = 0; i < product.input_count && there; ++i) {
      const uint64_t bytes = product.inputs[i].extent();
      const void* const from = view_(product.inputs[i].address, bytes);
      there = from;
      if (there) std::memcpy(reinterpret_cast<void*>(places.inputs[i]), from, bytes);
    }
    there = there && digest_of_inputs(product, places, options_.key) == execution->inputs;
    count(counters().dmr_window_again_ns, ring::now_ns() - begin);
    state->store(there ? kEqual : kOther, std::memory_order_release);
  };
  if (session_.on_stream(stream_, look)) return false;
  if (!work_until([&] { return state->load(std::memory_order_acquire) != kOpen; })) return false;
  if (state->load() == kOther) count(counters().dmr_expired);
  return state->load() == kEqual;
}

// The stream of windows waits for nothing but what was given to the device before. False: no window
// is used any more, or the session ends.
template <class Done>
bool SecondExecutions::work_until(Done done) {
  const uint64_t until = ring::now_ns() + kStalledNs;
  while (!done()) {
    if (session_.sticky() || session_.liveness().check() != ring::WaitStatus::kOk) return false;
    if (session_.work()) continue;
    if (ring::now_ns() > until) {
      PYFT_LOG(kServer, kWarning, "second executions do not come to their end: no more in windows");
      closed_ = true;
      return false;
    }
    const timespec moment{0, 50'000};
    nanosleep(&moment, nullptr);
  }
  return true;
}

// In the streams of the first executions: the cut waits for these streams, and so for the results.
void SecondExecutions::at_cut() {
  for (const auto& one : std::exchange(queue_, {})) {
    if (rotation_.is_covered(one->name, one->interval)) continue;
    void* stream = nullptr;
    if (one->second.when == When::kKept && !session_.open_captures() && !session_.sticky() &&
        session_.find_stream(one->product.stream, &stream))
      put_on(one, static_cast<CUstream>(stream), false);
    else
      count(counters().dmr_later);
  }
  of_stream_.clear();
  rotation_.at_cut(ring::now_ns());
  counters().dmr_period.store(rotation_.period(), std::memory_order_relaxed);
}

}  // namespace pyft::server::dmr
