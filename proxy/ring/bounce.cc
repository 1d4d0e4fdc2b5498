#include "ring/bounce.h"

#include <algorithm>
#include <cstring>

namespace pyft::ring {

namespace {

// Moves one of the two cursors and wakes those who sleep on its futex.
void move_to(std::atomic<uint64_t>& cursor, uint64_t position, std::atomic<uint32_t>& futex,
             const std::atomic<uint32_t>& waiting) {
  cursor.store(position, std::memory_order_seq_cst);
  futex.fetch_add(1, std::memory_order_seq_cst);
  if (waiting.load(std::memory_order_seq_cst)) futex_wake(futex);
}

}  // namespace

bool for_each_chunk(uint64_t bounce_bytes, uint64_t position, uint64_t bytes,
                    const std::function<bool(uint64_t, uint64_t, uint64_t)>& each) {
  for (uint64_t offset = 0; offset < bytes;) {
    const uint64_t at = position + offset;
    const uint64_t to_end = bounce_bytes - at % bounce_bytes;
    const uint64_t n = std::min({bounce_bytes / 4, to_end, bytes - offset});
    if (!each(at, offset, n)) return false;
    offset += n;
  }
  return true;
}

WaitStatus bounce_read(Channel& channel, uint64_t position, std::span<std::byte> out,
                       const Liveness& liveness) {
  ControlPage& page = channel.control();
  const uint64_t size = channel.bounce_bytes();
  WaitStatus status = WaitStatus::kOk;
  for_each_chunk(size, position, out.size(), [&](uint64_t at, uint64_t offset, uint64_t n) {
    status = wait_until(page.bounce_written_futex, &page.bounce_reader_waiting, liveness, [&] {
      return page.bounce_written.load(std::memory_order_seq_cst) >= at + n;
    });
    if (status != WaitStatus::kOk) return false;
    std::memcpy(out.data() + offset, channel.bounce() + at % size, n);
    // Another thread's transfer may lie before this one; its bytes must stay until it has them.
    status = wait_until(page.bounce_futex, &page.bounce_writer_waiting, liveness,
                        [&] { return page.bounce_read.load(std::memory_order_seq_cst) == at; });
    if (status != WaitStatus::kOk) return false;
    move_to(page.bounce_read, at + n, page.bounce_futex, page.bounce_writer_waiting);
    return true;
  });
  return status;
}

WaitStatus bounce_write(Channel& channel, uint64_t position, uint64_t bytes,
                        const Liveness& liveness,
                        const std::function<void(std::byte*, uint64_t, uint64_t)>& fill) {
  ControlPage& page = channel.control();
  const uint64_t size = channel.bounce_bytes();
  if (position != page.bounce_written.load(std::memory_order_relaxed)) return WaitStatus::kTooLarge;
  WaitStatus status = WaitStatus::kOk;
  for_each_chunk(size, position, bytes, [&](uint64_t at, uint64_t offset, uint64_t n) {
    status = wait_until(page.bounce_futex, &page.bounce_writer_waiting, liveness, [&] {
      return at + n - page.bounce_read.load(std::memory_order_seq_cst) <= size;
    });
    if (status != WaitStatus::kOk) return false;
    fill(channel.bounce() + at % size, offset, n);
    move_to(page.bounce_written, at + n, page.bounce_written_futex, page.bounce_reader_waiting);
    return true;
  });
  return status;
}

}  // namespace pyft::ring
