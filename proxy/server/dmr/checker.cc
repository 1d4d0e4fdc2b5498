#include "server/dmr/checker.h"

#include <cstring>
#include <utility>

#include "ring/wait.h"

namespace pyft::server::dmr {

namespace {

using checkpoint::DigestKey;

// Any number: digests are compared within one job only, with those of servers before.
constexpr uint64_t kSeed = 0x5eed'0f'd1'6e575;

// Precondition: the range is mapped.
Digest digest_of(const Range& range, DigestKey key) {
  const auto* from = reinterpret_cast<const std::byte*>(range.address);
  const bool dense = range.pitch == range.bytes || range.columns == 1;
  if (dense && range.slices == 1) return checkpoint::digest(from, range.bytes * range.columns, key);
  checkpoint::Hasher hasher(key);
  for (uint64_t slice = 0; slice < range.slices; ++slice) {
    const std::byte* const begin = from + slice * range.stride;
    if (dense) {
      hasher.add(begin, range.bytes * range.columns);
      continue;
    }
    for (uint64_t column = 0; column < range.columns; ++column)
      hasher.add(begin + column * range.pitch, range.bytes);
  }
  return hasher.digest();
}

Digest digest_of_inputs(const Product& product, DigestKey key) {
  std::array<Digest, 5> parts{};
  parts[0] = checkpoint::digest(product.arguments.data(), product.arguments.size(), key);
  for (size_t i = 0; i < product.input_count; ++i) parts[i + 1] = digest_of(product.inputs[i], key);
  return checkpoint::digest(parts.data(), (product.input_count + 1) * sizeof parts[0], key);
}

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

}  // namespace

struct Checker::Execution {
  Product product;
  uint64_t seq = 0, cut = 0;
  std::shared_ptr<Pairs> pairs;  // of its interval
  Digest inputs{};
};

Checker::Checker(Session& session, View view, std::vector<Dispute> disputes, Hears& hears)
    : session_(session),
      view_(view),
      votes_(std::move(disputes)),
      hears_(hears),
      key_(kSeed),
      pairs_(std::make_shared<Pairs>()) {}

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
  if (reading == Reading::kOther) return plainly();
  ring::ControlPage& page = session_.channel().control();
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
  execution->seq = header.seq;
  execution->cut = cut_;
  execution->pairs = pairs_;
  if (session_.on_stream(stream, [this, execution] { before(execution); })) return plainly();
  Status status = plainly();
  if (status.ok()) session_.on_stream(stream, [this, execution] { after(*execution); });
  return status;
}

void Checker::before(const std::shared_ptr<Execution>& execution) {
  const uint64_t begin = ring::now_ns();
  execution->inputs = digest_of_inputs(execution->product, key_);
  count(session_.channel().control().dmr_digest_ns, ring::now_ns() - begin);
}

void Checker::after(const Execution& execution) {
  ring::ControlPage& page = session_.channel().control();
  const Product& product = execution.product;
  const uint64_t begin = ring::now_ns();
  const Digest outputs = digest_of(product.output, key_);
  count(page.dmr_digest_ns, ring::now_ns() - begin);
  count(page.dmr_products);
  count(page.dmr_flops, product.flops());
  for (const Votes::Said& said : votes_.add(execution.seq, execution.inputs, outputs))
    hears_.voted(said);
  const auto [found, first, before] =
      execution.pairs->add(execution.inputs, outputs, execution.seq);
  if (found == Pairs::Found::kForgotten) count(page.dmr_forgotten);
  if (found != Pairs::Found::kEqual && found != Pairs::Found::kMismatch) return;
  count(page.dmr_pairs);
  count(page.dmr_pair_flops, 2 * product.flops());
  if (found == Pairs::Found::kEqual) return;
  count(page.dmr_mismatches);
  hears_.mismatch(
      "behind cut [" + std::to_string(execution.cut) + "], " + in_words(product) +
          " has other bits at entry [" + std::to_string(execution.seq) + "] than at entry [" +
          std::to_string(first) + "], from the same inputs",
      {first, execution.seq, session_.recovery().dispatching(), execution.inputs, before, outputs});
}

void Checker::at_cut(uint64_t number) {
  cut_ = number;
  pairs_ = std::make_shared<Pairs>();
}

void install(Session& session, std::unique_ptr<Checker> checker) {
  session.state<Installed>().checker = std::move(checker);
}

Status perform_checked(Session& session, const EntryHeader& header, Body body, Body payload) {
  return session.state<Installed>().checker->perform(header, body, payload);
}

void before_entry(Session& session, const ring::EntryView& entry) {
  if (entry.header.call != static_cast<uint16_t>(ring::Mark::kCut)) return;
  Checker* const checker = session.state<Installed>().checker.get();
  ring::CutMark body;
  if (!checker || entry.body.size() < sizeof body) return;
  std::memcpy(&body, entry.body.data(), sizeof body);
  checker->at_cut(body.number);
}

}  // namespace pyft::server::dmr
