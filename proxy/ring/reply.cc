#include "ring/reply.h"

#include <sched.h>

#include <bit>
#include <cstring>

#include "pyft/fault.h"

namespace pyft::ring {

uint32_t ReplySlots::claim() {
  for (;; sched_yield())
    for (uint32_t word = 0; word < used_.size(); ++word) {
      uint64_t used = used_[word].load(std::memory_order_relaxed);
      while (~used) {
        const int bit = std::countr_one(used);
        if (used_[word].compare_exchange_weak(used, used | uint64_t{1} << bit,
                                              std::memory_order_acquire))
          return word * 64 + static_cast<uint32_t>(bit);
      }
    }
}

void ReplySlots::release(uint32_t slot) {
  used_[slot / 64].fetch_and(~(uint64_t{1} << slot % 64), std::memory_order_release);
}

WaitStatus wait_reply(Channel& channel, uint32_t slot, uint64_t seq, const Liveness& liveness) {
  ReplySlot& reply = channel.slot(slot);
  return wait_until(reply.futex, &reply.waiters, liveness,
                    [&] { return reply.done_seq.load(std::memory_order_seq_cst) == seq; });
}

bool answer(Channel& channel, uint32_t slot, uint64_t seq, int32_t code,
            std::span<const uint64_t> values, std::span<const std::byte> bytes) {
  if (slot >= kReplySlots || values.size() > kReplyValues || bytes.size() > kReplyInlineBytes)
    return false;
  ReplySlot& reply = channel.slot(slot);
  reply.code = code;
  reply.bytes = static_cast<uint32_t>(bytes.size());
  std::memset(reply.values, 0, sizeof reply.values);
  if (!values.empty()) std::memcpy(reply.values, values.data(), values.size_bytes());
  if (!bytes.empty()) std::memcpy(reply.data, bytes.data(), bytes.size());
  PYFT_FAULT("server.before_answer");
  reply.done_seq.store(seq, std::memory_order_seq_cst);
  // The futex word changes before `waiters` is read; the waiter does both the other way round, so
  // one of the two sees the other.
  reply.futex.fetch_add(1, std::memory_order_seq_cst);
  if (reply.waiters.load(std::memory_order_seq_cst)) futex_wake(reply.futex);
  return true;
}

}  // namespace pyft::ring
