#include "server/recovery/capture.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "pyft/fault.h"
#include "ring/wait.h"
#include "server/recovery/cut_comparison.h"

namespace pyft::server {

namespace {

constexpr int kNotReady = 600;
constexpr uint64_t kStagingBytes = uint64_t{1} << 20;
constexpr uint64_t kLarge = 64 << 10;
constexpr uint64_t kMaxEvery = 64;
constexpr uint64_t kUnweighed = 3;  // captures whose cost is that of new memory

void add(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
}

std::string failed(const MemoryRange& block, int code) {
  return "reading [" + std::to_string(block.bytes) + "] bytes at [" +
         std::to_string(block.address) + "] fails with code [" + std::to_string(code) + "]";
}

}  // namespace

CaptureOptions capture_options() {
  CaptureOptions options;
  if (const char* every = std::getenv("PYFT_CUT_EVERY"))
    options.every = std::strtoull(every, nullptr, 10);
  return options;
}

Capture::Capture(Session& session, Store& store, RecoveryCalls calls, const CaptureOptions& options)
    : session_(session),
      store_(store),
      calls_(std::move(calls)),
      options_(options),
      hasher_(store.seed()) {
  every_ = options.every ? options.every : 1;
  if (store.has_point()) last_captured_ = store.point().manifest.cut;
  // A server that died right after it had made this cut the recovery point has told nobody.
  if (last_captured_ > session.channel().control().captured_cut.load())
    decided(last_captured_, true);
  store.header().cut_every.store(every_, std::memory_order_relaxed);
}

Status Capture::take(const ring::EntryHeader& header, std::span<const std::byte> body,
                     std::span<const std::byte> payload, uint64_t position) {
  ring::CutMark cut{};
  if (body.size() < sizeof cut) return Status::broken("a cut is too short");
  std::memcpy(&cut, body.data(), sizeof cut);
  // In a replay: an earlier server has decided.
  if (cut.number <= last_captured_) return Status::good();
  if (!is_due(cut)) {
    add(store_.header().skipped, 1);
    decided(cut.number, false);
    return Status::good();
  }
  const uint64_t began = ring::now_ns();
  const std::string problem = capture(cut, header, payload, position);
  if (problem.empty()) {
    last_captured_ = cut.number;
    add(store_.header().captures, 1);
    add(store_.header().cut_ns, ring::now_ns() - began);
  } else {
    store_.drop_open();
    cancelled(problem);
  }
  decided(cut.number, problem.empty());
  return Status::good();
}

// A cut for want of space is not left out: the client waits for it.
bool Capture::is_due(const ring::CutMark& cut) {
  return cut.forced || cut.number >= last_captured_ + every_ || !store_.has_point();
}

std::string Capture::capture(const ring::CutMark& cut, const ring::EntryHeader& header,
                             std::span<const std::byte> scope, uint64_t position) {
  if (calls_.capturing()) return "a stream captures a graph";
  const uint64_t began = ring::now_ns();
  if (std::string problem = join(); !problem.empty()) return problem;
  PYFT_FAULT("cut.after_join");
  const uint64_t joined = ring::now_ns();
  std::vector<MemoryRange> mapped, scratch;
  std::vector<ring::ManifestPlace> hidden;
  calls_.mapped(&mapped);
  calls_.hidden(&hidden);
  calls_.scratch(&scratch);
  LiveSet live;
  std::string problem = find_live(scope, std::move(mapped), std::move(scratch), hidden, &live);
  const auto& before = store_.point().blocks;
  auto old = before.begin();
  for (const MemoryRange& block : live.blocks) {
    if (!problem.empty()) return problem;
    while (old != before.end() && old->address < block.address) ++old;
    const bool same =
        old != before.end() && old->address == block.address && old->bytes == block.bytes;
    problem = store_block(block, same ? &*old : nullptr);
  }
  if (!problem.empty()) return problem;
  if (store_.unfinished() && store_.unfinished()->manifest.cut == cut.number)
    compare_cut(session_.recovery(), header.seq, store_.point(), *store_.unfinished(),
                store_.open_blocks());
  PYFT_FAULT("cut.before_publish");
  ring::Manifest manifest{};
  manifest.cut = cut.number;
  manifest.seq = header.seq;
  manifest.position = position;
  const bool first = !store_.has_point();
  if (calls_.about_to_publish) calls_.about_to_publish(cut.number);
  if (!store_.publish(manifest, std::move(hidden))) return store_.problem();
  if (calls_.published) calls_.published(cut.number, header.seq);
  const uint64_t done = ring::now_ns();
  ring::StoreHeader& figures = store_.header();
  add(figures.join_ns, joined - began);
  figures.live_blocks.store(live.blocks.size(), std::memory_order_relaxed);
  figures.live_bytes.store(store_.point().manifest.bytes, std::memory_order_relaxed);
  if (first) {
    figures.block_bytes.store(live.block_bytes, std::memory_order_relaxed);
    figures.mapped_bytes.store(live.mapped_bytes, std::memory_order_relaxed);
    figures.hidden_bytes.store(live.hidden_bytes, std::memory_order_relaxed);
    figures.scratch_bytes.store(live.scratch_bytes, std::memory_order_relaxed);
  }
  weigh(cut.number, began, done - joined);
  return {};
}

// The thread that dispatches may have to execute the device's work itself. A device that gets on
// with what it was given long before has all the time it needs; what cannot be waited for is an
// operation that needs another rank, which may need what comes behind this cut.
std::string Capture::join() {
  const uint64_t last = ring::now_ns() + options_.join_limit_ns;
  uint64_t deadline = ring::now_ns() + options_.join_timeout_ns, seen = session_.device_progress();
  useconds_t pause = 10;
  for (;;) {
    bool moved = false;
    while (session_.work() && ring::now_ns() < last) moved = true;
    const int code = calls_.idle();
    if (code == 0) return {};
    if (code != kNotReady)
      return "the device fails with code [" + std::to_string(code) + "] before the cut";
    const uint64_t now = ring::now_ns(), progress = session_.device_progress();
    if (moved || progress != seen) deadline = now + options_.join_timeout_ns;
    seen = progress;
    if (now > last)
      return "after [" + std::to_string(options_.join_limit_ns / 1'000'000'000) +
             "] s the device still works on what it was given before";
    if (now > deadline)
      return "for [" + std::to_string(options_.join_timeout_ns / 1'000'000) +
             "] ms a stream has stood still before its end";
    usleep(pause);
    pause = std::min<useconds_t>(pause * 2, 200);
  }
}

// Blocks that do not change are read once and not written; those that do are read once as well.
std::string Capture::store_block(const MemoryRange& block, const ring::ManifestBlock* before) {
  if (add_untouched(block)) return {};
  if (!before || volatile_.contains(block.address)) return copy_block(block, before);
  ring::Digest digest{};
  if (std::string problem = read(block, nullptr, &digest); !problem.empty()) return problem;
  if (store_.add_known(block.address, block.bytes, digest)) {
    add(store_.header().unchanged_bytes, block.bytes);
    return {};
  }
  return copy_block(block, before);
}

// Work areas that a library has got and not used yet are large and need no look.
bool Capture::add_untouched(const MemoryRange& block) {
  if (block.bytes < kLarge || !calls_.untouched || !calls_.untouched(block.address, block.bytes))
    return false;
  const ring::Digest zeros = zero_digest(block.bytes, store_.seed());
  if (!store_.add_known(block.address, block.bytes, zeros)) {
    const uint64_t offset = store_.reserve(block.bytes);
    if (offset == Heap::kNone) return false;  // so will the next step say, and why
    std::memset(store_.at(offset), 0, block.bytes);
    store_.add_stored(block.address, block.bytes, zeros, offset);
  }
  volatile_.erase(block.address);
  add(store_.header().unchanged_bytes, block.bytes);
  return true;
}

std::string Capture::copy_block(const MemoryRange& block, const ring::ManifestBlock* before) {
  const uint64_t offset = store_.reserve(block.bytes);
  if (offset == Heap::kNone) return store_.problem();
  ring::Digest digest{};
  if (std::string problem = read(block, store_.at(offset), &digest); !problem.empty()) {
    store_.give_back(offset, block.bytes);
    return problem;
  }
  add(store_.header().copied_bytes, block.bytes);
  store_.add_stored(block.address, block.bytes, digest, offset);
  if (before && before->digest == digest)
    volatile_.erase(block.address);
  else if (before)
    volatile_.insert(block.address);
  return {};
}

std::string Capture::read(const MemoryRange& block, std::byte* copy, ring::Digest* out) {
  add(store_.header().hashed_bytes, block.bytes);
  if (calls_.view) {
    const std::byte* at = calls_.view(block.address, block.bytes);
    if (!at) return failed(block, 1);
    *out = copy ? copy_and_digest(copy, at, block.bytes, store_.seed())
                : digest(at, block.bytes, store_.seed());
    return {};
  }
  if (!copy) staging_.resize(kStagingBytes);
  hasher_.restart();
  for (uint64_t at = 0; at < block.bytes; at += kStagingBytes) {
    const uint64_t part = std::min(kStagingBytes, block.bytes - at);
    std::byte* to = copy ? copy + at : staging_.data();
    if (const int code = calls_.read(block.address + at, to, part)) return failed(block, code);
    hasher_.add(to, part);
  }
  *out = hasher_.digest();
  return {};
}

// In a replay a cut may be taken that an earlier server has already decided about: numbers only
// grow.
void Capture::decided(uint64_t cut, bool captured) {
  ring::ControlPage& page = session_.channel().control();
  if (captured) page.captured_cut.store(cut, std::memory_order_seq_cst);
  if (page.decided_cut.load() < cut) page.decided_cut.store(cut, std::memory_order_seq_cst);
  if (!page.decided_waiters.load(std::memory_order_seq_cst)) return;
  page.decided_futex.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(page.decided_futex);
}

void Capture::cancelled(const std::string& why) {
  add(store_.header().cancelled, 1);
  if (std::exchange(said_, true)) return;
  std::fprintf(stderr, "pyft-server: device [%u]: a cut is not captured: %s\n", session_.device(),
               why.c_str());
}

// How many cuts lie between two captures follows from what one costs. Both numbers are averages
// over some captures, and the interval becomes shorter only when that is clear.
void Capture::weigh(uint64_t cut, uint64_t began_ns, uint64_t spent_ns) {
  const uint64_t cuts = std::max<uint64_t>(1, cut - last_captured_);
  const auto period = static_cast<double>(began_ns - last_began_ns_) / static_cast<double>(cuts);
  const auto average = [](double* value, double next) {
    *value = *value > 0 ? 0.75 * *value + 0.25 * next : next;
  };
  last_began_ns_ = began_ns;
  if (options_.every || ++weighed_ <= kUnweighed) return;
  average(&cost_ns_, static_cast<double>(spent_ns));
  average(&period_ns_, period);
  const double wanted = std::min<double>(kMaxEvery, cost_ns_ / (options_.budget * period_ns_));
  if (wanted > static_cast<double>(every_) || wanted < 0.7 * static_cast<double>(every_ - 1))
    every_ = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(wanted)));
  store_.header().cut_every.store(every_, std::memory_order_relaxed);
}

}  // namespace pyft::server
