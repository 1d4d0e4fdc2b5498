#include "checkpoint/memory/stage.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "checkpoint/bytes_passed.h"
#include "checkpoint/throttle.h"
#include "pyft/log.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kLarge = 64 << 10;     // worth asking whether it has been touched
constexpr uint64_t kSmall = 16 << 10;     // copied sooner than handed over, if it can be looked at
constexpr uint64_t kForgotten = 1 << 12;  // habits more than live blocks before some are dropped
constexpr uint32_t kSure = 3;             // gates at which a block was what it had been at the cut

void add_to(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
}

std::string failed(const MemoryRange& block, int code) {
  return "reading [" + std::to_string(block.bytes) + "] bytes at [" +
         std::to_string(block.address) + "] fails with code [" + std::to_string(code) + "]";
}

}  // namespace

Stage::Stage(Store& store, DeviceMemory& memory)
    : store_(store), memory_(memory), hasher_(store.digest_key()) {}

std::string Stage::add(const std::vector<MemoryRange>& blocks, bool late, const SharePlan* plan) {
  ++cut_;
  plan_ = plan;
  elsewhere_bytes_ = 0;
  later_.clear();
  together_.clear();
  unsure_.clear();
  if (std::string problem = hash_on_device(blocks); !problem.empty()) return problem;
  late_ = late && (memory_.views() || !hashed_.empty());  // or all of it comes to the host as it is
  const auto& before = store_.committed().blocks;
  auto old = before.begin();
  for (const MemoryRange& block : blocks) {
    ahead_ = hashed_.empty() ? nullptr : &hashed_[static_cast<size_t>(&block - blocks.data())];
    while (old != before.end() && old->address < block.address) ++old;
    const bool same =
        old != before.end() && old->address == block.address && old->bytes == block.bytes;
    if (std::string problem = add_block(block, same ? &*old : nullptr); !problem.empty())
      return problem;
    pass_bytes(block.bytes);  // whatever had to be done about it
  }
  if (std::string problem = copy_together(); !problem.empty()) return problem;
  store_.header().elsewhere_bytes.store(elsewhere_bytes_, std::memory_order_relaxed);
  if (habits_.size() > 2 * blocks.size() + kForgotten)
    std::erase_if(habits_, [this](const auto& one) { return one.second.cut != cut_; });
  return {};
}

std::vector<CopyJob> Stage::take_later() {
  return std::exchange(later_, {});
}

Stage::Habit& Stage::habit_of(const MemoryRange& block, bool known) {
  Habit& habit = habits_[block.address];
  if (habit.bytes != block.bytes) habit = {block.bytes, false, false, 0, 0};
  if (!known) habit.same_gates = 0;  // it may be another tensor's by now
  habit.cut = cut_;
  return habit;
}

// Of all blocks at once. A device that cannot do it, or not any more, leaves it to the host.
std::string Stage::hash_on_device(const std::vector<MemoryRange>& blocks) {
  hashed_.clear();
  if (!memory_.hashes() || blocks.empty() || distrusts_) return {};
  const uint64_t began = ring::now_ns();
  hashed_.resize(blocks.size());
  const int code = memory_.digests(blocks, hashed_.data());
  if (code) hashed_.clear();
  add_to(store_.header().hash_ns, ring::now_ns() - began);
  if (code == 0 || code == kNotOnDevice) return {};
  return "hashing memory on the device fails with code [" + std::to_string(code) + "]";
}

// Blocks that do not change are read once and not written; those that do and are copied now are
// read once as well.
std::string Stage::add_block(const MemoryRange& block, const ring::ManifestBlock* before) {
  Habit& habit = habit_of(block, before);
  const auto owner = plan_ ? plan_->owner(block) : std::nullopt;
  if (owner && !only_rests_) return add_elsewhere(block, *owner, before, habit);
  if (add_untouched(block, habit)) return {};
  const bool sure = may_rest(block, habit) && habit.same_gates >= kSure;
  if (owner && sure) return add_elsewhere(block, *owner, before, habit);
  const bool later = late_ && sure;
  if (!ahead_ && !later && (!before || habit.between_cuts)) return copy_now(block, before, habit);
  ring::Digest digest{};
  if (std::string problem = read(block, nullptr, &digest); !problem.empty()) return problem;
  habit.between_cuts = before && before->digest != digest;
  if (store_.add_known(block.address, block.bytes, digest)) {
    add_to(store_.header().unchanged_bytes, block.bytes);
    return {};
  }
  if (later) return copy_hashed(block, digest, &later_);
  if (!ahead_) return copy_now(block, before, habit);
  if (is_to_be_learned(block, habit)) unsure_.push_back({block, digest});
  return copy_hashed(block, digest, &together_);
}

// Also one that this store has: what it keeps for the last snapshot only is free when that goes.
std::string Stage::add_elsewhere(const MemoryRange& block, uint64_t owner,
                                 const ring::ManifestBlock* before, Habit& habit) {
  ring::Digest digest{};
  if (is_untouched(block, habit))
    digest = zero_digest(block.bytes, store_.digest_key());
  else if (std::string problem = read(block, nullptr, &digest); !problem.empty())
    return problem;
  habit.between_cuts = before && before->digest != digest;
  store_.add_elsewhere(block.address, block.bytes, digest, owner);
  elsewhere_bytes_ += block.bytes;
  return {};
}

// Work areas that a library has got and not used yet are large and need no look. What changes has
// been touched: to ask costs as much as to hash 100 KB.
bool Stage::is_untouched(const MemoryRange& block, const Habit& habit) const {
  return block.bytes >= kLarge && !habit.between_cuts &&
         memory_.untouched(block.address, block.bytes);
}

bool Stage::add_untouched(const MemoryRange& block, Habit& habit) {
  if (!is_untouched(block, habit)) return false;
  const ring::Digest zeros = zero_digest(block.bytes, store_.digest_key());
  if (!store_.add_known(block.address, block.bytes, zeros)) {
    const uint64_t offset = store_.reserve(block.bytes);
    if (offset == Heap::kNone) return false;  // so will the next step say, and why
    std::memset(store_.at(offset), 0, block.bytes);
    store_.add_stored(block.address, block.bytes, zeros, offset);
  }
  habit.between_cuts = false;
  add_to(store_.header().unchanged_bytes, block.bytes);
  return true;
}

std::string Stage::copy_now(const MemoryRange& block, const ring::ManifestBlock* before,
                            Habit& habit) {
  const uint64_t offset = store_.reserve(block.bytes);
  if (offset == Heap::kNone) return store_.problem();
  ring::Digest digest{};
  if (std::string problem = read(block, store_.at(offset), &digest); !problem.empty()) {
    store_.give_back(offset, block.bytes);
    return problem;
  }
  throttle(block.bytes);
  add_to(store_.header().copied_bytes, block.bytes);
  store_.add_stored(block.address, block.bytes, digest, offset);
  habit.between_cuts = before && before->digest != digest;
  if (is_to_be_learned(block, habit)) unsure_.push_back({block, digest});
  return {};
}

// Nothing else takes the content for it before the copy is there: the snapshot is open until then.
std::string Stage::copy_hashed(const MemoryRange& block, ring::Digest digest,
                               std::vector<CopyJob>* jobs) {
  const uint64_t offset = store_.reserve(block.bytes);
  if (offset == Heap::kNone) return store_.problem();
  store_.add_stored(block.address, block.bytes, digest, offset);
  jobs->push_back({block.address, block.bytes, store_.at(offset), digest});
  return {};
}

// What the device has hashed and is not left for later, so that one travels while another is
// hashed.
std::string Stage::copy_together() {
  if (together_.empty()) return {};
  const uint64_t began = ring::now_ns();
  size_t i = 0;
  uint64_t bytes = 0;
  std::optional<CopyJob> wrong;
  const auto read_now = [this](const NextRange& next, const TakePiece& take) {
    return memory_.read(next, take);
  };
  const auto read_hashed = [this](const NextRange& next, const TakePiece& take,
                                  const TakeDigest& hashed) {
    return memory_.read_hashed(next, take, hashed);
  };
  const int code = copy_by_reading(
      {read_now, read_hashed}, store_.digest_key(),
      [&] { return i < together_.size() ? &together_[i++] : nullptr; },
      [&](const CopyJob& job, bool same) {
        if (!same && !wrong) wrong = job;
        bytes += job.bytes;
      });
  ring::StoreHeader& figures = store_.header();
  add_to(figures.copy_ns, ring::now_ns() - began);
  add_to(figures.copied_bytes, bytes);
  add_to(figures.fetched_bytes, bytes);
  if (!wrong && !code) return {};
  const CopyJob& job = wrong.value_or(together_.back());
  const MemoryRange block{job.address, job.bytes};
  return code ? failed(block, code) : distrust(block);
}

// It may stay as it is until the gate, and is worth the trouble.
bool Stage::may_rest(const MemoryRange& block, const Habit& habit) const {
  return !habit.before_gate && (block.bytes >= kSmall || !memory_.views());
}

bool Stage::is_to_be_learned(const MemoryRange& block, const Habit& habit) const {
  return (late_ || only_rests_) && may_rest(block, habit) && habit.same_gates < kSure;
}

// As they have been hashed at the cut: what the device has hashed is not fetched for this.
void Stage::gate(bool rests) {
  const std::vector<Copied> unsure = std::exchange(unsure_, {});
  if (!rests) return;
  std::vector<MemoryRange> blocks;
  for (const Copied& one : unsure) blocks.push_back(one.block);
  if (!memory_.views() && (!hash_on_device(blocks).empty() || hashed_.empty())) return;
  for (size_t i = 0; i < unsure.size(); ++i) {
    const auto& [block, digest] = unsure[i];
    ahead_ = memory_.views() ? nullptr : &hashed_[i];
    ring::Digest now{};
    const bool same = read(block, nullptr, &now).empty() && now == digest;
    Habit& habit = habits_[block.address];
    habit.before_gate = !same;
    ++habit.same_gates;
  }
  ahead_ = nullptr;
}

void Stage::changed(uint64_t address) {
  habits_[address].before_gate = true;
}

std::string Stage::read(const MemoryRange& block, std::byte* copy, ring::Digest* out) {
  ring::StoreHeader& figures = store_.header();
  add_to(figures.hashed_bytes, block.bytes);
  if (!copy && ahead_) {
    *out = *ahead_;
    return {};
  }
  const uint64_t began = ring::now_ns();
  const int code = memory_.views() ? look(block, copy, out) : fetch(block, copy, out);
  add_to(copy ? figures.copy_ns : figures.hash_ns, ring::now_ns() - began);
  return code ? failed(block, code) : std::string();
}

// The cut is cancelled: it has taken others of these digests for granted.
std::string Stage::distrust(const MemoryRange& block) {
  distrusts_ = true;
  const std::string why = "the device has another digest than its copy has, of [" +
                          std::to_string(block.bytes) + "] bytes at [" +
                          std::to_string(block.address) + "]";
  PYFT_LOG(kSnapshot, kWarning, "snapshots copy all memory to the host to hash it: %s",
           why.c_str());
  return why;
}

int Stage::look(const MemoryRange& block, std::byte* copy, ring::Digest* out) {
  const std::byte* at = memory_.view(block.address, block.bytes);
  if (!at) return 1;
  *out = copy ? copy_and_digest(copy, at, block.bytes, store_.digest_key())
              : digest(at, block.bytes, store_.digest_key());
  return 0;
}

// While a piece is hashed and copied the next one may travel.
int Stage::fetch(const MemoryRange& block, std::byte* copy, ring::Digest* out) {
  hasher_.restart();
  const auto take = [&](const std::byte* piece, uint64_t bytes) {
    if (copy) pass_copy(copy, piece, bytes);
    hasher_.add(piece, bytes);
    if (copy) copy += bytes;
  };
  if (const int code = memory_.read(only(block), take)) return code;
  *out = hasher_.digest();
  add_to(store_.header().fetched_bytes, block.bytes);
  return 0;
}

}  // namespace pyft::checkpoint
