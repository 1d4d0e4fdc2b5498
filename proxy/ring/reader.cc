#include "ring/reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ring/object_log.h"

namespace pyft::ring {

namespace {

constexpr uint16_t kKnownFlags =
    kWantsReply | kHasPayload | kCreates | kDestroys | kStreamCaptured | kProfiled | kRefused;

std::string number(const char* name, uint64_t value) {
  return std::string(name) + " [" + std::to_string(value) + "]";
}

}  // namespace

Reader::Reader(const LogView& log, Mode mode, uint64_t start)
    : log_(log), mode_(mode), position_(start) {}

Reader Reader::trace(const LogView& log) {
  return Reader(log, Mode::kTrace, log.header->oldest.load(std::memory_order_acquire));
}

Reader::Next Reader::damaged(const std::string& what) {
  error_ = "the entry at ring position [" + std::to_string(position_) + "] is damaged: " + what;
  return Next::kDamaged;
}

// The writer of a live ring may have overwritten what was just copied; then start over later.
bool Reader::overtaken() {
  if (mode_ == Mode::kServer) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint64_t oldest = log_.header->oldest.load(std::memory_order_relaxed);
  if (oldest <= position_) return false;
  position_ = oldest;
  last_seq_ = 0;
  return true;
}

Reader::Next Reader::next(EntryView* out) {
  for (;;) {
    if (!error_.empty()) return Next::kDamaged;
    // The writer's line is left alone until everything known has been read: each look takes it away
    // from the client, which needs it for its next entry.
    if (mode_ != Mode::kServer || seen_ <= position_)
      seen_ = log_.header->appended.load(std::memory_order_acquire);
    const uint64_t appended = seen_;
    if (appended == position_) return Next::kEmpty;
    const uint64_t available = appended - position_;
    if (appended < position_ || appended % kEntryAlign || position_ % kEntryAlign ||
        (available > log_.ring_bytes && !overtaken()))
      return damaged(number("the end of the ring is at", appended));
    if (available > log_.ring_bytes) continue;

    const std::byte* at = log_.ring + position_ % log_.ring_bytes;
    const uint64_t tail = log_.ring_bytes - position_ % log_.ring_bytes;
    EntryHeader start{};
    std::memcpy(&start, at, std::min<uint64_t>(sizeof start, tail));
    const uint64_t limit = std::min(tail, available);
    const bool pad = start.call == static_cast<uint16_t>(Mark::kPad);
    const uint64_t smallest = pad ? kEntryAlign : sizeof(EntryHeader);
    if (start.size < smallest || start.size % kEntryAlign || start.size > limit ||
        (pad && start.size != tail)) {
      if (overtaken()) continue;
      return damaged(number("size", start.size));
    }
    if (pad) {
      position_ += start.size;
      continue;
    }
    copy_.resize((start.size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
    std::memcpy(copy_.data(), at, start.size);
    // Of the copy, because the ring itself can change between two looks.
    std::memcpy(&out->header, copy_.data(), sizeof out->header);
    if (overtaken()) continue;
    out->header.size = start.size;
    out->position = position_;
    out->body = {reinterpret_cast<const std::byte*>(copy_.data()) + sizeof(EntryHeader),
                 start.size - sizeof(EntryHeader)};
    if (!check_header(out->header) || !find_payload(out)) return Next::kDamaged;
    last_seq_ = out->header.seq;
    position_ += start.size;
    return Next::kEntry;
  }
}

bool Reader::check_header(const EntryHeader& header) {
  if (header.call < kFirstCall && header.call > static_cast<uint16_t>(Mark::kGoodbye))
    damaged(number("call", header.call));
  else if (header.flags & ~kKnownFlags)
    damaged(number("flags", header.flags));
  else if (header.seq == 0 || (last_seq_ && header.seq != last_seq_ + 1))
    damaged(number("sequence number", header.seq) + " after " + number("", last_seq_).substr(1));
  else if (header.flags & kWantsReply ? header.reply_slot >= kReplySlots
                                      : header.reply_slot != kNoSlot)
    damaged(number("reply slot", header.reply_slot));
  return error_.empty();
}

bool Reader::find_payload(EntryView* out) {
  const EntryHeader& header = out->header;
  out->payload = {};
  out->payload_overwritten = false;
  if (!(header.flags & kHasPayload)) {
    if (header.payload_bytes) damaged(number("payload without flag, bytes", header.payload_bytes));
    return error_.empty();
  }
  const uint64_t offset = header.payload_position % log_.arena_bytes;
  const uint64_t head = log_.header->arena_head.load(std::memory_order_acquire);
  if (header.payload_bytes == 0 || header.payload_bytes > log_.arena_bytes - offset)
    damaged(number("payload bytes", header.payload_bytes));
  else if (header.payload_position > head || header.payload_bytes > head - header.payload_position)
    damaged(number("payload position", header.payload_position));
  else if (head - header.payload_position > log_.arena_bytes)
    out->payload_overwritten = true;
  else
    out->payload = {log_.arena + offset, header.payload_bytes};
  if (out->payload_overwritten && mode_ == Mode::kServer)
    damaged(number("overwritten payload at", header.payload_position));
  return error_.empty();
}

}  // namespace pyft::ring
