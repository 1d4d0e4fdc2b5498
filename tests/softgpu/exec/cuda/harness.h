// What the conformance programs share: counted failures, and numbers that are the same in every
// run.
#pragma once

#include <cstdint>
#include <cstdio>

static int failures = 0;

#define CHECK(cond, ...)                                              \
  do {                                                                \
    if (!(cond)) {                                                    \
      if (failures++ < 20) {                                          \
        std::printf("%s:%d: %s failed: ", __FILE__, __LINE__, #cond); \
        std::printf(__VA_ARGS__);                                     \
        std::printf("\n");                                            \
      }                                                               \
    }                                                                 \
  } while (0)

// Marsaglia's xorshift64.
static inline uint64_t next_random64() {
  static uint64_t state = 88172645463325252ull;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}
