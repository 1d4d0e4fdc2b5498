#include "transport/fault.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "transport/address.h"
#include "transport/fault_rules.h"
#include "transport/frame.h"
#include "transport/socket.h"

namespace flexccl {
namespace {

[[noreturn]] void fail_cut(const LinkName& name) {
  // Not ncclRemoteError: this rank is the one that ends, not its peer.
  fail(ncclSystemError, "rank [", name.rank, "] was cut off on purpose by a fault rule");
}

// Does what kill and cut say.
[[noreturn]] void end_rank(const FaultRule& rule, const LinkName& name) {
  note_down(rule);
  if (rule.action == FaultAction::kKill) {
    kill(getpid(), SIGKILL);
    for (;;) pause();  // the signal is on its way
  }
  cut(name);
  fail_cut(name);
}

bool ends_rank(const FaultRule& rule) {
  return rule.action == FaultAction::kKill || rule.action == FaultAction::kCut;
}

std::size_t frame_bytes(const void* start) {
  FrameHeader header;
  std::memcpy(&header, start, sizeof header);
  return sizeof header + (header.bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

// Whether a frame starts here although the one before it is not complete: a rank may give a frame
// up half-way when the communicator is repaired.
bool starts_frame(const void* at, std::size_t bytes, const LinkName& name) {
  FrameHeader header;
  if (bytes < sizeof header) return false;
  std::memcpy(&header, at, sizeof header);
  return header.magic == kMagic && header.comm == name.comm;
}

class FaultyOutbound final : public Outbound {
 public:
  FaultyOutbound(std::unique_ptr<Outbound> link, const LinkName& name)
      : link_(std::move(link)), name_(name) {}

  std::size_t write(std::span<const iovec> parts) override {
    if (is_cut(name_)) fail_cut(name_);
    if (parts.empty()) return 0;
    const iovec& front = parts.front();
    if (passed_ == whole_ || (passed_ && starts_frame(front.iov_base, front.iov_len, name_)))
      begin(front.iov_base);
    if (std::chrono::steady_clock::now() < held_until_) return 0;
    const std::size_t limit = std::min(whole_, stop_at_) - passed_;
    std::size_t taken = 0;
    if (swallows_)
      taken = std::min(whole_ - passed_, total(parts));
    else if (limit)
      taken = link_->write(cut_short(parts, limit));
    passed_ += taken;
    if (flip_at_ < passed_) {
      note_down(rule_);
      flip_at_ = SIZE_MAX;
    }
    if (stop_at_ <= whole_ && passed_ >= stop_at_) stop();
    return taken;
  }
  int fd() const override { return link_ ? link_->fd() : -1; }
  bool alive() override { return !link_ || link_->alive(); }
  void ring() override {
    if (link_) link_->ring();
  }

 private:
  void begin(const void* start) {
    passed_ = 0, whole_ = frame_bytes(start), stop_at_ = SIZE_MAX;
    swallows_ = link_ == nullptr;
    const auto rule = next_fault(name_, false);
    if (!rule) return;
    rule_ = *rule;
    if (ends_rank(rule_) || rule_.action == FaultAction::kTruncate)
      stop_at_ = std::min(whole_, rule_.bytes / kBlockBytes * kBlockBytes);
    if (rule_.action == FaultAction::kDrop) swallows_ = true;
    if (rule_.action == FaultAction::kDelay) held_until_ = in_ms(rule_.ms);
    if (rule_.action == FaultAction::kCorrupt) flip_at_ = rule_.bytes;
    if (rule_.action == FaultAction::kDrop || rule_.action == FaultAction::kDelay) note_down(rule_);
    if (stop_at_ == 0) stop();
  }
  void stop() {
    if (ends_rank(rule_)) end_rank(rule_, name_);
    note_down(rule_);
    link_.reset();
    swallows_ = true, stop_at_ = SIZE_MAX;  // this rank does not notice
  }

  static std::size_t total(std::span<const iovec> parts) {
    std::size_t bytes = 0;
    for (const iovec& part : parts) bytes += part.iov_len;
    return bytes;
  }
  // The first `limit` bytes, with the bit flipped if it is among them. The whole copy is made so
  // that the rank's own buffers stay as they are.
  std::span<const iovec> cut_short(std::span<const iovec> parts, std::size_t limit) {
    copy_.clear();
    for (const iovec& part : parts) {
      const auto* from = static_cast<const std::byte*>(part.iov_base);
      copy_.insert(copy_.end(), from, from + std::min(part.iov_len, limit - copy_.size()));
    }
    if (flip_at_ >= passed_ && flip_at_ - passed_ < copy_.size())
      copy_[flip_at_ - passed_] ^= std::byte{1};
    one_ = {copy_.data(), copy_.size()};
    return {&one_, 1};
  }

  std::unique_ptr<Outbound> link_;
  LinkName name_;
  FaultRule rule_;
  std::size_t passed_ = 0, whole_ = 0;  // of the current frame
  std::size_t stop_at_ = SIZE_MAX, flip_at_ = SIZE_MAX;
  Deadline held_until_ = {};
  bool swallows_ = false;
  std::vector<std::byte> copy_;
  iovec one_ = {};
};

class FaultyInbound final : public Inbound {
 public:
  FaultyInbound(std::unique_ptr<Inbound> link, const LinkName& name)
      : link_(std::move(link)), name_(name) {}

  std::span<const std::byte> peek() override {
    if (is_cut(name_)) fail_cut(name_);
    const auto arrived = link_->peek();
    if (!arrived.empty() && (!left_ || starts_next(arrived))) begin(arrived.data());
    if (std::chrono::steady_clock::now() < held_until_) return {};
    // No further than this frame, so that each one is counted.
    const auto now = arrived.first(std::min(arrived.size(), left_));
    if (ends_ && now.size() > stop_at_) {
      if (!stop_at_) end_rank(rule_, name_);
      return now.first(stop_at_);
    }
    return now;
  }
  void consume(std::size_t bytes) override {
    link_->consume(bytes);
    left_ -= bytes;
    if (ends_) stop_at_ -= std::min(stop_at_, bytes);
    if (ends_ && !left_) end_rank(rule_, name_);
  }
  int fd() const override { return link_->fd(); }
  bool alive() override { return link_->alive(); }
  void ring() override { link_->ring(); }

 private:
  bool starts_next(std::span<const std::byte> arrived) const {
    return left_ != whole_ && starts_frame(arrived.data(), arrived.size(), name_);
  }
  void begin(const void* start) {
    left_ = whole_ = frame_bytes(start);
    const auto rule = next_fault(name_, true);
    if (!rule) return;
    rule_ = *rule;
    ends_ = ends_rank(rule_);
    stop_at_ = rule_.bytes / kBlockBytes * kBlockBytes;
    if (rule_.action != FaultAction::kDelay) return;
    note_down(rule_);
    held_until_ = in_ms(rule_.ms);
  }

  std::unique_ptr<Inbound> link_;
  LinkName name_;
  FaultRule rule_;
  std::size_t left_ = 0, whole_ = 0;  // of the current frame
  std::size_t stop_at_ = 0;
  bool ends_ = false;
  Deadline held_until_ = {};
};

void fault_at(FaultPlace place, std::uint64_t comm, int rank) {
  if (!faults_are_set()) return;
  const LinkName name{comm, 0, static_cast<std::uint32_t>(rank), 0};
  if (const auto rule = next_fault_at(place, name)) end_rank(*rule, name);
}

}  // namespace

void fault_in_repair(const LinkName& name) {
  if (!faults_are_set()) return;
  if (is_cut(name)) fail_cut(name);
  if (const auto rule = next_fault_at(FaultPlace::kRepair, name)) end_rank(*rule, name);
}

void fault_in_init(std::uint64_t comm, int rank) {
  fault_at(FaultPlace::kInit, comm, rank);
}

void fault_in_split(std::uint64_t comm, int rank) {
  fault_at(FaultPlace::kSplit, comm, rank);
}

void fault_in_answer() {
  if (!faults_are_set()) return;
  const LinkName name{};
  if (const auto rule = next_fault_at(FaultPlace::kAnswer, name)) end_rank(*rule, name);
}

std::unique_ptr<Outbound> with_faults(std::unique_ptr<Outbound> link, const LinkName& name) {
  if (!faults_are_set()) return link;
  return std::make_unique<FaultyOutbound>(std::move(link), name);
}

std::unique_ptr<Inbound> with_faults(std::unique_ptr<Inbound> link, const LinkName& name) {
  if (!faults_are_set()) return link;
  return std::make_unique<FaultyInbound>(std::move(link), name);
}

}  // namespace flexccl
