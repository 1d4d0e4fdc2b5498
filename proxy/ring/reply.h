// Answers to entries with kWantsReply.
//
// Client: claim a ticket, append the entry with ticket.slot(), wait. Server: answer(). A slot has
// one user at a time, so done_seq == seq says that everything else in it belongs to this entry.
#ifndef PYFT_RING_REPLY_H_
#define PYFT_RING_REPLY_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "ring/channel.h"
#include "ring/wait.h"

namespace pyft::ring {

// Which slots of one channel are in use in this client process.
class ReplySlots {
 public:
  uint32_t claim();  // waits (yielding) in the unlikely case that all kReplySlots are in use
  void release(uint32_t slot);

 private:
  std::array<std::atomic<uint64_t>, kReplySlots / 64> used_{};
};

// RAII claim. The slot's contents may be read until the ticket ends.
class ReplyTicket {
 public:
  explicit ReplyTicket(ReplySlots& slots) : slots_(slots), slot_(slots.claim()) {}
  ReplyTicket(const ReplyTicket&) = delete;
  ReplyTicket& operator=(const ReplyTicket&) = delete;
  ~ReplyTicket() {
    if (slot_ != kNoSlot) slots_.release(slot_);
  }
  uint32_t slot() const { return slot_; }
  // After a failed wait the answer may still come: the slot is never given to anyone else.
  void abandon() { slot_ = kNoSlot; }

 private:
  ReplySlots& slots_;
  uint32_t slot_;
};

// kOk: channel.slot(slot) holds the answer to `seq`.
WaitStatus wait_reply(Channel& channel, uint32_t slot, uint64_t seq, const Liveness& liveness);

// Server. False when the slot number or the sizes (5 values, kReplyInlineBytes) are out of range.
bool answer(Channel& channel, uint32_t slot, uint64_t seq, int32_t code,
            std::span<const uint64_t> values = {}, std::span<const std::byte> bytes = {});

}  // namespace pyft::ring

#endif  // PYFT_RING_REPLY_H_
