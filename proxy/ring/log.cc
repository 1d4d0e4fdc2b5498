#include "pyft/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "pyft/settings.h"

namespace pyft::log {

constinit std::array<std::atomic<Level>, kModules> levels{Level::kInfo, Level::kInfo, Level::kInfo,
                                                          Level::kInfo, Level::kInfo, Level::kInfo,
                                                          Level::kInfo};

namespace {

constexpr std::array<std::string_view, 5> kLevelNames{"error", "warning", "info", "debug", "trace"};
// The last two are those of Python (pyft/log.py), which takes the same variable.
constexpr std::array<std::string_view, kModules + 2> kModuleNames{
    "client", "ring", "server", "snapshot", "recovery", "softgpu", "flexccl", "agent", "plan"};

std::atomic<const std::atomic<uint32_t>*> rank_of_process{nullptr};
std::atomic<std::atomic<uint32_t>*> said_of_device{nullptr};
std::atomic<bool> labels{false};

template <size_t N>
std::optional<size_t> index_of(const std::array<std::string_view, N>& names,
                               std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<size_t>(found - names.begin());
}

template <size_t N>
std::string list(const std::array<std::string_view, N>& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// A part of the text, `level` or `module=level`; false if it is neither.
bool take(std::string_view part, std::array<Level, kModules + 2>* wanted) {
  const size_t equals = part.find('=');
  const bool one = equals != part.npos;
  const auto level = index_of(kLevelNames, one ? part.substr(equals + 1) : part);
  if (!level) return false;
  if (!one) wanted->fill(static_cast<Level>(*level));
  const auto module = one ? index_of(kModuleNames, part.substr(0, equals)) : std::nullopt;
  if (module) (*wanted)[*module] = static_cast<Level>(*level);
  return module.has_value() == one;
}

std::string rank_text() {
  const std::atomic<uint32_t>* const rank = rank_of_process.load();
  if (rank) return " rank " + std::to_string(rank->load(std::memory_order_relaxed));
  const std::string text = settings::rank();
  return text.empty() ? "" : " rank " + text;
}

// Lines of the client's libraries are pyft's to the user, those of servers are the server's; the
// soft GPU and flexccl have a name of their own.
std::string_view name_of(Module module) {
  if (module == Module::kSoftgpu) return "softgpu: ";
  if (module == Module::kFlexccl) return "flexccl: ";
  return module <= Module::kRing ? "pyft: " : "pyft-server: ";
}

std::string prefix(Module module, Level level) {
  std::string text(name_of(module));
  if (!labels.load(std::memory_order_relaxed)) return text;
  return text + "[" + std::string(kLevelNames[static_cast<size_t>(level)]) + " " +
         std::string(kModuleNames[static_cast<size_t>(module)]) + rank_text() + " pid " +
         std::to_string(getpid()) + "] ";
}

// Runs when the library is loaded.
const bool configured = [] {
  const std::string problem = configure(settings::log());
  if (!problem.empty()) std::fprintf(stderr, "pyft: %s\n", problem.c_str());
  return problem.empty();
}();

}  // namespace

std::string configure(const std::string& text) {
  std::array<Level, kModules + 2> wanted;
  wanted.fill(Level::kInfo);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (!take(std::string_view(text).substr(at, end - at), &wanted))
      return "PYFT_LOG is [" + text + "], not LEVEL or MODULE=LEVEL, with commas between them; " +
             "levels: " + list(kLevelNames) + "; modules: " + list(kModuleNames);
    at = end + 1;
  }
  for (size_t i = 0; i < kModules; ++i) levels[i].store(wanted[i], std::memory_order_relaxed);
  labels = !text.empty();
  return {};
}

void follow_rank(const std::atomic<uint32_t>* rank) {
  rank_of_process = rank;
}

void follow_said(std::atomic<uint32_t>* said) {
  said_of_device = said;
}

bool is_news(std::string_view sentence) {
  std::atomic<uint32_t>* const said = said_of_device.load();
  if (!said) return true;
  const size_t hash =
      std::hash<std::string_view>{}(sentence.substr(0, sentence.find(" in block [")));
  const auto now = static_cast<uint32_t>(hash) | 1U;
  return said->exchange(now, std::memory_order_relaxed) != now;
}

void write(Module module, Level level, const char* format, ...) {
  va_list values;
  va_start(values, format);
  va_list again;
  va_copy(again, values);
  std::vector<char> sentence(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, values)) + 1);
  va_end(values);
  std::vsnprintf(sentence.data(), sentence.size(), format, again);
  va_end(again);
  const std::string line = prefix(module, level) + sentence.data() + "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace pyft::log
