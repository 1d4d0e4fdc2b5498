// What client and server say on stderr. PYFT_LOG chooses by level and module: `debug`, or
// `warning,recovery=trace`. Without it errors, warnings and infos come as bare sentences, for
// users; with it each line names its level, module, rank and process.
//
// The soft GPU and flexccl do not include this: they are libraries of their own, and hand their
// lines to a function that the server gives them. The agent has the same in pyft/log.py.
#ifndef PYFT_LOG_H_
#define PYFT_LOG_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pyft::log {

enum class Level : uint8_t { kError, kWarning, kInfo, kDebug, kTrace };
enum class Module : uint8_t { kClient, kRing, kServer, kSnapshot, kRecovery, kSoftgpu, kFlexccl };
inline constexpr size_t kModules = 7;

// By module, the last level that is said.
extern std::array<std::atomic<Level>, kModules> levels;

// One relaxed load: for hot paths too.
inline bool says(Module module, Level level) {
  return level <= levels[static_cast<size_t>(module)].load(std::memory_order_relaxed);
}

// In one write, so that lines of processes do not mix.
[[gnu::format(printf, 3, 4)]] void write(Module module, Level level, const char* format, ...);

// The same for a library that hands over lines with the number of a level.
template <Module module>
void write_line(int level, const char* sentence) {
  const auto said = static_cast<Level>(level);
  if (says(module, said)) write(module, said, "%s", sentence);
}

// Takes a value of PYFT_LOG; empty, or why it is refused (then nothing changes).
std::string configure(const std::string& text);

// Where the rank of this process stands. It must outlive all that is said.
void follow_rank(const std::atomic<uint32_t>* rank);

// Where stands what was said last of the device's errors. It must outlive all that is said.
void follow_said(std::atomic<uint32_t>* said);
// Whether the sentence is another one than the last; remembers it. What comes behind " in block ["
// does not count: which thread of a kernel is the first depends on its order.
bool is_news(std::string_view sentence);

}  // namespace pyft::log

// PYFT_LOG(kRecovery, kDebug, "phase [%s]", name). Arguments are looked at only if it is said.
#define PYFT_LOG(module, level, ...)                                                           \
  do {                                                                                         \
    if (::pyft::log::says(::pyft::log::Module::module, ::pyft::log::Level::level))             \
      ::pyft::log::write(::pyft::log::Module::module, ::pyft::log::Level::level, __VA_ARGS__); \
  } while (false)

#endif  // PYFT_LOG_H_
