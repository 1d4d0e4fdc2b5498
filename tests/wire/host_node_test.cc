// The node of the host's memory nearest to a GPU: which it is, by a host of the test's making, and
// that a server's threads run there. Of the kernel what any machine shows.
#include "server/host_node.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

using namespace pyft;  // NOLINT: a test

namespace {

namespace fs = std::filesystem;

std::map<int, int> attributes;  // what the driver tells; nothing of any other

CUresult attribute(int* value, CUdevice_attribute which, CUdevice device) {
  const auto found = attributes.find(which);
  if (device != 3 || found == attributes.end()) return CUDA_ERROR_INVALID_VALUE;
  *value = found->second;
  return CUDA_SUCCESS;
}

// Two sockets, and GPU 3 of the driver in the second.
struct Host {
  Host() {
    write("sys/devices/system/node/online", "0-1");
    write("sys/devices/system/node/node0/cpulist", "0-3,8-11");
    write("sys/devices/system/node/node1/cpulist", "4-7,12-15");
    write("sys/bus/pci/devices/0001:1b:02.0/numa_node", "1");
    attributes = {{CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 1},
                  {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0x1b},
                  {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 2}};
    table.cuDeviceGetAttribute = attribute;
  }
  ~Host() { fs::remove_all(root); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  const fs::path root = fs::temp_directory_path() / ("host_node-" + std::to_string(getpid()));
  backend::Table table{};
};

struct Chosen : server::Processors {
  explicit Chosen(std::vector<int> may) : may(std::move(may)) {}
  std::vector<int> allowed() override { return may; }
  bool run_on(const std::vector<int>& processors) override {
    return refuses ? false : (now = processors, true);
  }
  std::vector<int> may, now;
  bool refuses = false;
};

std::vector<int> upto(int end, int begin = 0) {
  std::vector<int> all;
  for (int one = begin; one < end; ++one) all.push_back(one);
  return all;
}

std::string done(const Host& host, Chosen& chosen) {
  return server::stay_near(host.table, 3, chosen, host.root);
}

}  // namespace

TEST(the_kernel_tells_the_node_of_a_gpu) {
  const Host host;
  CHECK_EQ(server::node_of(host.table, 3, host.root).value_or(-1), 1);
  CHECK(server::processors_of(1, host.root) == (std::vector<int>{4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST(where_the_kernel_does_not_tell_the_driver_may) {
  const Host host;
  host.write("sys/bus/pci/devices/0001:1b:02.0/numa_node", "-1");
  CHECK(!server::node_of(host.table, 3, host.root));
  attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = 1;
  CHECK_EQ(server::node_of(host.table, 3, host.root).value_or(-1), 1);
  attributes.erase(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  CHECK_EQ(server::node_of(host.table, 3, host.root).value_or(-1), 1);
  attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = -1;
  CHECK(!server::node_of(host.table, 3, host.root));
  CHECK(!server::node_of({}, 3, host.root));
}

TEST(a_host_of_one_node_has_none_that_is_nearest) {
  const Host host;
  host.write("sys/devices/system/node/online", "0");
  CHECK(!server::node_of(host.table, 3, host.root));
  fs::remove(host.root / "sys/devices/system/node/online");
  CHECK(!server::node_of(host.table, 3, host.root));
}

TEST(what_is_no_list_of_processors_has_none) {
  const Host host;
  for (const char* const text : {"", "x", "4-", "4-x", "7-4", "-1", "0-99999999", "99999999"}) {
    host.write("sys/devices/system/node/node1/cpulist", text);
    CHECK(server::processors_of(1, host.root).empty());
  }
  CHECK(server::processors_of(7, host.root).empty());
}

TEST(threads_run_near_the_gpu) {
  const Host host;
  Chosen chosen(upto(16));
  CHECK_EQ(done(host, chosen),
           "node [1] of the host's memory is nearest: threads run on [8] of [16] processors");
  CHECK(chosen.now == server::processors_of(1, host.root));
}

TEST(whoever_has_chosen_processors_keeps_to_them) {
  const Host host;
  Chosen some(upto(6, 2)), elsewhere(upto(4)), there(upto(7, 5));
  done(host, some);
  CHECK(some.now == (std::vector<int>{4, 5}));
  CHECK(done(host, elsewhere).ends_with("none of its processors may be used"));
  CHECK(done(host, there).ends_with("all threads run there"));
  CHECK(elsewhere.now.empty() && there.now.empty());
}

TEST(a_kernel_that_refuses_changes_nothing) {
  const Host host;
  Chosen chosen(upto(16));
  chosen.refuses = true;
  CHECK(done(host, chosen).ends_with("cannot be chosen"));
}

// In a thread of its own: this one keeps its processors.
TEST(threads_made_later_and_their_pages_are_there_too) {
  std::thread([] {
    server::KernelProcessors kernel;
    const std::vector<int> before = kernel.allowed();
    CHECK(!before.empty());
    const int one = before.back();
    CHECK(kernel.run_on({one}));
    CHECK(kernel.allowed() == std::vector<int>{one});
    int ran_on = -1, node = -1;
    std::thread([&] {
      ran_on = sched_getcpu();
      const auto page = static_cast<char*>(
          mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
      *page = 1;
      constexpr unsigned long kNode = 1, kAddress = 2;  // MPOL_F_NODE, MPOL_F_ADDR
      syscall(SYS_get_mempolicy, &node, nullptr, 0UL, page, kNode | kAddress);
      munmap(page, 4096);
    }).join();
    CHECK_EQ(ran_on, one);
    const std::vector<int> there = server::processors_of(std::max(node, 0));
    CHECK(node < 0 || there.empty() || std::ranges::find(there, one) != there.end());
    CHECK(!kernel.run_on({}));
  }).join();
}

CHECK_MAIN
