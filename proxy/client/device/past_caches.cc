#include "client/device/past_caches.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace pyft::client {

void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
  size_t at = 0;
#if defined(__SSE2__)
  at = std::min<size_t>(bytes, (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, at);
  for (; at + 64 <= bytes; at += 64)
    for (size_t word = at; word < at + 64; word += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + word),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + word)));
  _mm_sfence();
#endif
  std::memcpy(to + at, from + at, bytes - at);
}

}  // namespace pyft::client
