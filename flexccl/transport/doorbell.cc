#include "transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace flexccl {

void Doorbell::ring() const {
  words()->value.fetch_add(1, std::memory_order_seq_cst);
  if (words()->sleepers.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, &words()->value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Doorbell::wait(std::uint32_t seen, std::uint32_t timeout_ms) const {
  const timespec timeout{static_cast<time_t>(timeout_ms / 1000),
                         static_cast<long>(timeout_ms % 1000) * 1000000};
  words()->sleepers.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &words()->value, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  words()->sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return value() != seen;
}

}  // namespace flexccl
