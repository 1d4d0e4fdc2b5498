#include "exec/noise.h"

#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>

#include "core/log.h"
#include "core/settings.h"

namespace softgpu::exec {

namespace {

constexpr size_t kDevices = 8;

std::optional<uint64_t> start_of_process() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto ns =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  return ns ^ static_cast<uint64_t>(getpid()) << 32;
}

// A number that ends at `stop`; none: there is another character, or nothing.
std::optional<uint64_t> number(const char* text, char stop, const char** rest) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 0);
  if (end == text || (*end && *end != stop)) return std::nullopt;
  *rest = *end ? end + 1 : nullptr;
  return value;
}

// Seed and start in one number; none: no noise.
std::optional<uint64_t> from_environment() {
  const char* const text = settings::noise();
  if (!*text) return std::nullopt;
  const char* rest = nullptr;
  const auto seed = number(text, ':', &rest);
  const auto start = seed && rest ? number(rest, '\0', &rest) : start_of_process();
  if (!seed || !start) {
    log_line(SOFTGPU_LOG_WARNING, "SOFTGPU_NOISE [%s] is neither a number nor seed:start", text);
    return std::nullopt;
  }
  if (!*seed) return std::nullopt;
  return noise_of(*seed, *start, 0, 0);
}

}  // namespace

uint64_t draw_noise(int device, bool again) {
  static const std::optional<uint64_t> base = from_environment();
  if (!base) [[likely]]
    return 0;
  static std::array<std::array<std::atomic<uint64_t>, kDevices>, 2> launches{};
  const auto which = static_cast<size_t>(device) % kDevices;
  const uint64_t number = launches[again][which].fetch_add(1);
  return noise_of(*base, which, number, again ? 2 : 1) | 1;
}

}  // namespace softgpu::exec
