// Device-to-host bytes for pageable destinations: the server writes them at the position the client
// reserved (Writer::reserve_bounce), in chunks, while the client copies earlier chunks out.
#ifndef PYFT_RING_BOUNCE_H_
#define PYFT_RING_BOUNCE_H_

#include <cstdint>
#include <functional>
#include <span>

#include "ring/channel.h"
#include "ring/wait.h"

namespace pyft::ring {

// Calls each(position, offset, bytes) for the chunks of a transfer: at most a quarter of the area
// and never across its end. Both sides cut the same way. Stops when `each` returns false.
bool for_each_chunk(
    uint64_t bounce_bytes, uint64_t position, uint64_t bytes,
    const std::function<bool(uint64_t position, uint64_t offset, uint64_t n)>& each);

// Client: copies the transfer out, also when the server reports an error for it afterwards (the
// server always moves on over the whole transfer).
WaitStatus bounce_read(Channel& channel, uint64_t position, std::span<std::byte> out,
                       const Liveness& liveness);

// Server. `fill(destination, offset, n)` produces the bytes. A position other than the end of the
// last transfer is a protocol error: kTooLarge. kEnding when the client is gone.
WaitStatus bounce_write(Channel& channel, uint64_t position, uint64_t bytes,
                        const Liveness& liveness,
                        const std::function<void(std::byte*, uint64_t offset, uint64_t n)>& fill);

}  // namespace pyft::ring

#endif  // PYFT_RING_BOUNCE_H_
