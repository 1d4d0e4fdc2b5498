#include "checkpoint/store/spare_memory.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace pyft::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kLeastKept = uint64_t{64} << 20, kMostKept = uint64_t{2} << 30;
constexpr uint64_t kKeptShare = 32;

// What the files of a control group are called, in the kernel's two versions of them.
struct Version {
  std::string_view controller, folder, limit, used, active_files, inactive_files;
};
constexpr std::array<Version, 2> kVersions{
    Version{"", "sys/fs/cgroup", "memory.max", "memory.current", "active_file", "inactive_file"},
    Version{"memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
            "total_active_file", "total_inactive_file"}};

uint64_t minus(uint64_t from, uint64_t what) {
  return from - std::min(from, what);
}

uint64_t spare(uint64_t total, uint64_t left) {
  return minus(left, std::clamp(total / kKeptShare, kLeastKept, kMostKept));
}

std::optional<uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;  // `max` is none
}

// The number behind a name, in a file of names and numbers.
uint64_t field(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  uint64_t number = 0;
  for (std::string found; file >> found && file >> number;) {
    if (found == name) return number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');  // a unit
  }
  return 0;
}

uint64_t spare_of_host(const fs::path& proc) {
  const uint64_t total = field(proc / "meminfo", "MemTotal:") << 10;
  return total ? spare(total, field(proc / "meminfo", "MemAvailable:") << 10) : kNoLimit;
}

uint64_t spare_of_group(const fs::path& group, const Version& version) {
  const auto limit = number_in(group / version.limit), used = number_in(group / version.used);
  if (!limit || !used) return kNoLimit;
  const fs::path figures = group / "memory.stat";
  const uint64_t files =
      field(figures, version.active_files) + field(figures, version.inactive_files);
  return spare(*limit, minus(*limit, minus(*used, files)));
}

// Where this process is among the groups of a version: `/` in a container that sees its own only.
std::string own_group(const fs::path& proc, const Version& version) {
  std::ifstream file(proc / "self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string named = ',' + line.substr(first + 1, second - first - 1) + ',';
    if (named.find(',' + std::string(version.controller) + ',') != std::string::npos)
      return line.substr(second + 1);
  }
  return "/";
}

}  // namespace

uint64_t spare_memory(const fs::path& root) {
  uint64_t least = spare_of_host(root / "proc");
  for (const Version& version : kVersions) {
    const fs::path top = root / version.folder;
    const fs::path own = fs::path(own_group(root / "proc", version)).relative_path();
    for (fs::path group = own;; group = group.parent_path()) {
      least = std::min(least, spare_of_group(top / group, version));
      if (group.empty()) break;
    }
  }
  return least;
}

}  // namespace pyft::checkpoint
