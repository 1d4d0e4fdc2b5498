#include "checkpoint/memory/memory_writer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "checkpoint/bytes_passed.h"
#include "checkpoint/memory/threads.h"
#include "checkpoint/throttle.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kPartBytes = uint64_t{8} << 20;  // of a large block, for a thread

constexpr const char* kWriting = "writing memory";
constexpr const char* kHashing = "hashing what was restored";

void passed(uint64_t bytes) {
  pass_bytes(bytes);
  throttle(bytes);
}

}  // namespace

// What the threads share.
class MemoryWriter::Plan {
 public:
  Plan(std::span<const BlockContent> contents, BlockBegins begins, uint64_t patience_ns)
      : contents_(contents), begins_(begins), patience_(patience_ns) {}

  std::span<const BlockContent> contents() const { return contents_; }

  // The next part of any block; false: all have been given out, or something has failed.
  bool next_part(Content* part) {
    const std::lock_guard lock(mutex_);
    for (; next_ < contents_.size() && !outcome_.code; ++next_, at_ = 0) {
      const auto& [block, from] = contents_[next_];
      if (!at_) begins_(block);
      *part = {block.address + at_, from + at_, std::min(kPartBytes, block.bytes - at_)};
      at_ += part->bytes;
      if (part->bytes) return true;
    }
    return false;
  }
  void begin(size_t which) { begins_(contents_[which].block); }

  // Contents before this one have been written.
  void written(size_t count) {
    const std::lock_guard lock(mutex_);
    written_ = count;
    changed_.notify_all();
  }
  // No more will be.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  // The next one to be looked at, when it has been written; none: what lies behind all. Where
  // nothing is written for so long there is none either: what is left is the writing thread's.
  size_t next_look() {
    std::unique_lock lock(mutex_);
    while (look_ == written_ && !ended_) {
      const auto gets_on = [this, before = written_] { return written_ != before || ended_; };
      if (!changed_.wait_for(lock, patience_, gets_on)) return contents_.size();
    }
    return look_ < written_ && !outcome_.code ? look_++ : contents_.size();
  }

  void wrong(size_t which) {
    const std::lock_guard lock(mutex_);
    outcome_.wrong.push_back(which);
  }
  void fail(int code, const char* what) {
    const std::lock_guard lock(mutex_);
    if (code && !outcome_.code) outcome_.code = code, outcome_.failed = what;
  }
  bool has_failed() {
    const std::lock_guard lock(mutex_);
    return outcome_.code != 0;
  }
  Outcome take() {
    std::ranges::sort(outcome_.wrong);
    return std::move(outcome_);
  }

 private:
  const std::span<const BlockContent> contents_;
  const BlockBegins begins_;
  const std::chrono::nanoseconds patience_;
  std::condition_variable changed_;
  std::mutex mutex_;  // guards what follows
  size_t written_ = 0, look_ = 0;
  bool ended_ = false;
  size_t next_ = 0;
  uint64_t at_ = 0;  // in the next one
  Outcome outcome_;
};

MemoryWriter::Outcome MemoryWriter::write(std::span<const BlockContent> contents,
                                          BlockBegins begins) {
  Plan plan(contents, begins, patience_ns_);
  const unsigned threads = contents.empty() ? 1 : memory_.threads();
  const bool looks = memory_.views();
  in_threads(threads, [&](unsigned i) {
    if (i) memory_.enter();
    if (looks) return write_and_look(&plan, threads == 1, i == 0);
    uint64_t taken = 0;
    const auto next = [&](Content* part) {
      passed(std::exchange(taken, 0));
      if (plan.next_part(part)) taken = part->bytes;
      return taken != 0;
    };
    plan.fail(memory_.write(next), kWriting);
  });
  if (looks || contents.empty() || plan.has_failed()) return plan.take();
  std::vector<ring::ManifestBlock> blocks;
  for (const BlockContent& one : contents) blocks.push_back(one.block);
  std::vector<bool> right;
  plan.fail(compare(blocks, &right), kHashing);
  for (size_t i = 0; i < right.size(); ++i)
    if (!right[i]) plan.wrong(i);
  return plan.take();
}

// A device that the server looks at writes in one thread, one block after the other. What it has
// written is hashed by the others meanwhile, and then by all.
void MemoryWriter::write_and_look(Plan* plan, bool alone, bool writes) {
  if (writes) write_each(plan, alone);
  for (size_t i; !alone && (i = plan->next_look()) < plan->contents().size();) look(plan, i);
}

void MemoryWriter::write_each(Plan* plan, bool looks) {
  // Also when something throws: the others are joined then.
  struct End {
    ~End() { plan->end(); }
    Plan* plan;
  } const end{plan};
  const std::span<const BlockContent> contents = plan->contents();
  for (size_t i = 0; i < contents.size() && !plan->has_failed(); ++i) {
    const auto& [block, from] = contents[i];
    plan->begin(i);
    plan->fail(memory_.write(only(Content{block.address, from, block.bytes})), kWriting);
    passed(block.bytes);
    if (looks) look(plan, i);
    plan->written(i + 1);
  }
}

void MemoryWriter::look(Plan* plan, size_t which) {
  Hasher hasher(key_);
  bool right = false;
  plan->fail(is_right(plan->contents()[which].block, &hasher, &right), kHashing);
  if (!right) plan->wrong(which);
}

// 0, or the code of a read. By the host.
int MemoryWriter::is_right(const ring::ManifestBlock& block, Hasher* hasher, bool* right) {
  if (const std::byte* const there = memory_.view(block.address, block.bytes)) {
    *right = digest(there, block.bytes, key_) == block.digest;
    return 0;
  }
  hasher->restart();
  const auto take = [&](const std::byte* bytes, uint64_t part) { hasher->add(bytes, part); };
  const int code = memory_.read(only(MemoryRange{block.address, block.bytes}), take);
  *right = !code && hasher->digest() == block.digest;
  return code;
}

int MemoryWriter::compare(std::span<const ring::ManifestBlock> blocks, std::vector<bool>* right) {
  right->assign(blocks.size(), false);
  std::vector<MemoryRange> ranges;
  for (const ring::ManifestBlock& block : blocks) ranges.push_back({block.address, block.bytes});
  std::vector<ring::Digest> digests(blocks.size());
  const int code = memory_.digests(ranges, digests.data());
  if (code && code != kNotOnDevice) return code;
  Hasher hasher(key_);
  for (size_t i = 0; i < blocks.size(); ++i) {
    bool same = !code && digests[i] == blocks[i].digest;
    if (const int failed = code ? is_right(blocks[i], &hasher, &same) : 0) return failed;
    (*right)[i] = same;
  }
  return 0;
}

}  // namespace pyft::checkpoint
