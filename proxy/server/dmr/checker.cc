#include "server/dmr/checker.h"

#include <cstring>
#include <utility>

#include "ring/wait.h"

namespace pyft::server::dmr {

namespace {

using checkpoint::DigestKey;

// Any number: digests are compared within one job only, with those of servers before.
constexpr uint64_t kSeed = 0x5eed'0f'd1'6e575;

constexpr const char* kAgain = "than when it was executed again";

std::string in_words(const Product& p) {
  std::string text = std::string("product [") + p.name + "] of [" + std::to_string(p.m) + " x " +
                     std::to_string(p.k) + "] and [" + std::to_string(p.k) + " x " +
                     std::to_string(p.n) + "]";
  return p.batch == 1 ? text : text + ", batch [" + std::to_string(p.batch) + "]";
}

struct Installed {
  std::unique_ptr<Checker> checker;
};

void count(std::atomic<uint64_t>& counter, uint64_t more = 1) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

bool is_launch(uint16_t call) {
  return call == static_cast<uint16_t>(Call::cuLaunchKernel);
}

SecondExecutions::Options with_key(SecondExecutions::Options options, DigestKey key) {
  options.key = key;
  return options;
}

}  // namespace

Checker::Checker(Session& session, Options options, Hears& hears)
    : session_(session),
      view_(options.view),
      votes_(std::move(options.disputes)),
      hears_(hears),
      key_(kSeed),
      pairs_(std::make_shared<Pairs>()),
      second_executions_(session, options.view, options.again, with_key(options.second, key_),
                         *this),
      kernels_(session, options.twice, with_key(options.second, key_), *this) {}

bool Checker::can_look(const Product& product) {
  const auto there = [this](const Range& range) {
    const uint64_t extent = range.extent();
    return extent && session_.in_device_window(range.address, extent) &&
           view_(range.address, extent);
  };
  for (size_t i = 0; i < product.input_count; ++i)
    if (!there(product.inputs[i])) return false;
  return there(product.output);
}

Status Checker::perform(const EntryHeader& header, Body body, Body payload) {
  const auto execution = std::make_shared<Execution>();
  const Reading reading = read_product(header, body, &execution->product);
  const auto plainly = [&] { return server::perform(session_, header, body, payload); };
  ring::ControlPage& page = session_.channel().control();
  if (reading == Reading::kOther) {
    if (!is_launch(header.call)) return plainly();
    return kernels_.perform(header, body, payload, cut_, votes_.wants_again(header.seq));
  }
  void* stream = nullptr;
  if (session_.open_captures()) {
    count(page.dmr_captured);
    return plainly();
  }
  if (reading == Reading::kOpaque || !session_.find_stream(execution->product.stream, &stream) ||
      !can_look(execution->product)) {
    count(page.dmr_opaque);
    return plainly();
  }
  execution->header = header;
  execution->cut = cut_;
  execution->pairs = pairs_;
  second_executions_.plan(execution, body, votes_.wants_again(header.seq));
  if (session_.on_stream(stream, [this, execution] { before(execution.get()); })) return plainly();
  Status status = plainly();
  if (!status.ok()) return status;
  session_.on_stream(stream, [this, execution] { after(execution.get()); });
  second_executions_.follow(execution, static_cast<CUstream>(stream));
  return status;
}

void Checker::before(Execution* execution) {
  const uint64_t begin = ring::now_ns();
  execution->inputs = digest_of_inputs(execution->product, places_of(execution->product), key_);
  count(session_.channel().control().dmr_digest_ns, ring::now_ns() - begin);
  second_executions_.before(*execution);
  execution->begun_ns = ring::now_ns();
}

void Checker::after(Execution* execution) {
  ring::ControlPage& page = session_.channel().control();
  const Product& product = execution->product;
  const uint64_t begin = ring::now_ns();
  execution->outputs = digest_of(product.output, product.output.address, key_);
  const uint64_t end = ring::now_ns();
  count(page.dmr_digest_ns, end - begin);
  count(page.dmr_products);
  count(page.dmr_flops, product.flops());
  second_executions_.rotation().cost(execution->name, end - execution->begun_ns);
  for (const Votes::Said& said :
       votes_.add(execution->seq(), execution->inputs, execution->outputs))
    hears_.voted(said);
  compare_pair(*execution);
  execution->done.store(true, std::memory_order_release);
}

void Checker::compare_pair(const Execution& execution) {
  ring::ControlPage& page = session_.channel().control();
  const auto [found, first, before, first_name] =
      execution.pairs->add(execution.inputs, execution.outputs, execution.seq(), execution.name);
  if (found == Pairs::Found::kForgotten) count(page.dmr_forgotten);
  if (found != Pairs::Found::kEqual && found != Pairs::Found::kMismatch) return;
  count(page.dmr_pairs);
  count(page.dmr_pair_flops, 2 * execution.product.flops());
  for (const Rotation::Name name : {execution.name, first_name}) {
    second_executions_.rotation().paired(name, execution.interval);
    cover(execution, name);
  }
  if (found == Pairs::Found::kEqual) return;
  mismatch(execution.cut, in_words(execution.product),
           "than at entry [" + std::to_string(first) + "], from the same inputs",
           {first, execution.seq(), session_.recovery().dispatching(), execution.inputs, before,
            execution.outputs});
}

void Checker::executed_again(const Execution& execution, const Digest& outputs) {
  for (const Votes::Said& said : votes_.add(execution.seq(), execution.inputs, outputs, true))
    hears_.voted(said);
  cover(execution, execution.name);
  if (outputs == execution.outputs) return;
  mismatch(execution.cut, in_words(execution.product), kAgain,
           {execution.seq(), execution.seq(), session_.recovery().dispatching(), execution.inputs,
            execution.outputs, outputs});
}

void Checker::cover(const Execution& execution, Rotation::Name name) {
  if (!second_executions_.rotation().covered(name, execution.interval)) return;
  count(counters().dmr_covered);
  count(counters().dmr_covered_flops, execution.product.flops());
}

// One that could not be compared gives no vote: its results are as good as those of other inputs.
void Checker::executed_twice(const Launch& launch, const std::string& kernel) {
  const bool compared = launch.is_compared();
  if (!compared && !launch.voted) return;
  const Digest inputs = compared ? launch.arguments() : Digest{};
  const Digest first = launch.outputs(false), second = launch.outputs(true);
  for (const bool again : {false, true})
    for (const Votes::Said& said : votes_.add(launch.seq(), inputs, again ? second : first, again))
      hears_.voted(said);
  if (!compared || first == second) return;
  mismatch(launch.cut, "kernel [" + kernel + "]", kAgain,
           {launch.seq(), launch.seq(), session_.recovery().dispatching(), inputs, first, second});
}

void Checker::mismatch(uint64_t cut, const std::string& what, const std::string& than,
                       const Dispute& dispute) {
  count(session_.channel().control().dmr_mismatches);
  hears_.mismatch("behind cut [" + std::to_string(cut) + "], " + what +
                      " has other bits at entry [" + std::to_string(dispute.second) + "] " + than,
                  dispute);
}

void Checker::at_cut(uint64_t number) {
  cut_ = number;
  pairs_ = std::make_shared<Pairs>();
  second_executions_.at_cut();
}

void install(Session& session, std::unique_ptr<Checker> checker) {
  session.state<Installed>().checker = std::move(checker);
}

Status perform_checked(Session& session, const EntryHeader& header, Body body, Body payload) {
  return session.state<Installed>().checker->perform(header, body, payload);
}

void before_entry(Session& session, const ring::EntryView& entry) {
  Checker* const checker = session.state<Installed>().checker.get();
  if (!checker) return;
  checker->second_executions().end_window();
  ring::CutMark body;
  if (entry.header.call != static_cast<uint16_t>(ring::Mark::kCut) ||
      entry.body.size() < sizeof body)
    return;
  std::memcpy(&body, entry.body.data(), sizeof body);
  checker->at_cut(body.number);
}

void while_idle(Session& session) {
  if (Checker* const checker = session.state<Installed>().checker.get())
    checker->second_executions().window();
}

}  // namespace pyft::server::dmr
