// What snapshots may still take of a host's memory, and of the limits of its control groups.
#include "checkpoint/store/spare_memory.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "check.h"

namespace {

namespace fs = std::filesystem;
using pyft::checkpoint::spare_memory;

constexpr uint64_t kMb = uint64_t{1} << 20, kGb = uint64_t{1} << 30;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// A machine's files of the kernel.
struct Machine {
  Machine() : root(fs::temp_directory_path() / ("spare_memory_" + std::to_string(getpid()))) {
    fs::remove_all(root);
  }
  ~Machine() { fs::remove_all(root); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  void has(uint64_t total, uint64_t available) const {
    write("proc/meminfo", "MemTotal:       " + std::to_string(total >> 10) +
                              " kB\nMemFree:              12 kB\nMemAvailable:   " +
                              std::to_string(available >> 10) + " kB\n");
  }
  void group(const std::string& path, const std::string& limit, uint64_t used,
             uint64_t files) const {
    write("sys/fs/cgroup/" + path + "/memory.max", limit + "\n");
    write("sys/fs/cgroup/" + path + "/memory.current", std::to_string(used) + "\n");
    write("sys/fs/cgroup/" + path + "/memory.stat",
          "anon 7\nfile 9\ninactive_file " + std::to_string(files / 2) + "\nactive_file " +
              std::to_string(files - files / 2) + "\n");
  }
  void old_group(const std::string& path, uint64_t limit, uint64_t used, uint64_t files) const {
    const std::string folder = "sys/fs/cgroup/memory/" + path;
    write(folder + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write(folder + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    write(folder + "/memory.stat", "inactive_file 1\nactive_file 1\ntotal_inactive_file " +
                                       std::to_string(files) + "\ntotal_active_file 0\n");
  }
  fs::path root;
};

TEST(what_cannot_be_read_limits_nothing) {
  const Machine machine;
  CHECK_EQ(spare_memory(machine.root), kNoLimit);
  machine.write("proc/meminfo", "what a kernel of tomorrow says");
  machine.write("proc/self/cgroup", "neither");
  machine.write("sys/fs/cgroup/memory.max", "nonsense");
  CHECK_EQ(spare_memory(machine.root), kNoLimit);
}

TEST(programs_keep_a_part_of_the_host) {
  const Machine machine;
  machine.has(32 * kGb, 10 * kGb);
  CHECK_EQ(spare_memory(machine.root), 9 * kGb);
  machine.has(kGb, 100 * kMb);
  CHECK_EQ(spare_memory(machine.root), 36 * kMb);  // 64 MiB at least
  machine.has(kGb, 10 * kMb);
  CHECK_EQ(spare_memory(machine.root), 0u);
  machine.has(2048 * kGb, 10 * kGb);
  CHECK_EQ(spare_memory(machine.root), 8 * kGb);  // 2 GiB at most
}

TEST(the_least_of_all_groups_above_the_process_counts) {
  const Machine machine;
  machine.has(32 * kGb, 10 * kGb);
  machine.write("proc/self/cgroup", "3:cpu,memory_not:/else\n0::/pod/job\n");
  machine.group("pod/job", "max", 5 * kGb, 0);
  CHECK_EQ(spare_memory(machine.root), 9 * kGb);
  machine.group("pod", std::to_string(2 * kGb), kGb + kGb / 2, kGb / 4);
  CHECK_EQ(spare_memory(machine.root), kGb / 2 + kGb / 4 - 64 * kMb);  // files are given up
  machine.group("pod/job", std::to_string(kGb), kGb, 100 * kMb);
  CHECK_EQ(spare_memory(machine.root), 36 * kMb);
  machine.group("pod/job", std::to_string(kGb), 3 * kGb, 0);
  CHECK_EQ(spare_memory(machine.root), 0u);
}

TEST(a_container_that_sees_its_own_group_only_has_its_limit_at_the_top) {
  const Machine machine;
  machine.has(32 * kGb, 10 * kGb);
  machine.write("proc/self/cgroup", "0::/\n");
  machine.write("sys/fs/cgroup/memory.max", std::to_string(kGb));
  machine.write("sys/fs/cgroup/memory.current", std::to_string(kGb / 2));
  CHECK_EQ(spare_memory(machine.root), kGb / 2 - 64 * kMb);
}

TEST(groups_of_the_kernels_first_version_count_too) {
  const Machine machine;
  machine.has(32 * kGb, 10 * kGb);
  machine.write("proc/self/cgroup", "4:memory,hugetlb:/docker/job\n0::/\n");
  machine.old_group("", kNoLimit / 2, 20 * kGb, 0);
  CHECK_EQ(spare_memory(machine.root), 9 * kGb);
  machine.old_group("docker/job", kGb, kGb, 100 * kMb);
  CHECK_EQ(spare_memory(machine.root), 36 * kMb);
}

TEST(this_machine_has_some) {
  CHECK(spare_memory() > 0);
  CHECK(spare_memory() < kNoLimit);
}

}  // namespace

CHECK_MAIN
