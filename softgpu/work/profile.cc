#include "work/profile.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/settings.h"

namespace softgpu {
namespace {

struct Total {
  uint64_t launches = 0, blocks = 0, instructions = 0, time_ns = 0;
  void add(const Total& other) {
    launches += other.launches;
    blocks += other.blocks;
    instructions += other.instructions;
    time_ns += other.time_ns;
  }
};

struct Profile {
  std::mutex mutex;
  std::map<std::string, Total> kernels;  // by mangled name
};

void print_line(const Total& t, const char* name) {
  const auto rate = t.time_ns ? static_cast<double>(t.instructions) * 1e3 / t.time_ns : 0.0;
  std::fprintf(stderr, "softgpu: %8llu %10llu %12llu %10.2f %8.1f  %s\n",
               static_cast<unsigned long long>(t.launches),
               static_cast<unsigned long long>(t.blocks),
               static_cast<unsigned long long>(t.instructions), t.time_ns * 1e-6, rate, name);
}

Profile& profile();

void print_table() {
  const std::lock_guard lock(profile().mutex);
  std::vector<std::pair<std::string, Total>> rows(profile().kernels.begin(),
                                                  profile().kernels.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.time_ns > b.second.time_ns; });
  std::fprintf(stderr, "softgpu: launches     blocks  warp-instr.         ms      M/s  kernel\n");
  Total all;
  for (const auto& [name, total] : rows) {
    all.add(total);
    print_line(total, name.c_str());
  }
  print_line(all, "all kernels");
}

// Never destroyed: worker threads may outlive static objects.
Profile& profile() {
  static Profile* const one = [] {
    std::atexit(print_table);
    return std::make_unique<Profile>().release();
  }();
  return *one;
}

}  // namespace

void profile_launch(const Launch& launch, uint64_t instructions, uint64_t time_ns) {
  if (!settings::profile()) return;
  const std::lock_guard lock(profile().mutex);
  profile().kernels[launch.kernel->name].add({1, launch.grid.count(), instructions, time_ns});
}

}  // namespace softgpu
