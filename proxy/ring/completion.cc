#include "ring/completion.h"

namespace pyft::ring {

void publish(Channel& channel, uint32_t index, uint64_t value) {
  CompletionWord& word = channel.word(index);
  uint64_t current = word.value.load(std::memory_order_relaxed);
  if (value <= current) return;
  // The time first: a process that sees the value must see a time not older than it.
  word.time_ns.store(now_ns(), std::memory_order_relaxed);
  while (current < value &&
         !word.value.compare_exchange_weak(current, value, std::memory_order_seq_cst))
    continue;
  word.futex.fetch_add(1, std::memory_order_seq_cst);  // before the look at waiters: see answer()
  if (word.waiters.load(std::memory_order_seq_cst)) futex_wake(word.futex);
}

bool reached(const Channel& channel, uint32_t word, uint64_t value) {
  return channel.word(word).value.load(std::memory_order_seq_cst) >= value;
}

uint64_t time_ns(const Channel& channel, uint32_t word) {
  return channel.word(word).time_ns.load(std::memory_order_relaxed);
}

WaitStatus wait_word(Channel& channel, uint32_t index, uint64_t value, const Liveness& liveness) {
  CompletionWord& word = channel.word(index);
  return wait_until(word.futex, &word.waiters, liveness,
                    [&] { return reached(channel, index, value); });
}

}  // namespace pyft::ring
