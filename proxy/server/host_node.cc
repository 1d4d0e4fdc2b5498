#include "server/host_node.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

namespace pyft::server {

namespace {

namespace fs = std::filesystem;

constexpr int kMostProcessors = 1 << 14;  // more than Linux knows

// A list of numbers as the kernel writes it: "0-3,8". What is no such list is none.
std::vector<int> listed(const fs::path& path) {
  std::ifstream file(path);
  std::vector<int> all;
  for (int first = 0; file >> first && first >= 0;) {
    int last = first;
    if (file.peek() == '-' && !(file.ignore() >> last)) return {};
    if (last < first || last >= kMostProcessors) return {};
    for (int one = first; one <= last; ++one) all.push_back(one);
    if (file.peek() == ',') file.ignore();
  }
  return all;
}

std::optional<int> attribute(const backend::Table& table, CUdevice_attribute which, int ordinal) {
  int value = 0;
  const auto ask = table.cuDeviceGetAttribute;
  return ask && ask(&value, which, ordinal) == CUDA_SUCCESS ? std::optional(value) : std::nullopt;
}

// The kernel's folder of a device.
fs::path device_folder(const backend::Table& table, int ordinal) {
  const auto domain = attribute(table, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, ordinal);
  const auto bus = attribute(table, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, ordinal);
  const auto slot = attribute(table, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, ordinal);
  if (!domain || !bus || !slot) return {};
  char name[40];
  std::snprintf(name, sizeof name, "%04x:%02x:%02x.0", static_cast<unsigned>(*domain),
                static_cast<unsigned>(*bus), static_cast<unsigned>(*slot));
  return fs::path("sys/bus/pci/devices") / name;
}

std::string node_text(int node) {
  return "node [" + std::to_string(node) + "] of the host's memory is nearest";
}

}  // namespace

std::vector<int> KernelProcessors::allowed() {
  cpu_set_t* const set = CPU_ALLOC(kMostProcessors);
  const size_t bytes = CPU_ALLOC_SIZE(kMostProcessors);
  CPU_ZERO_S(bytes, set);
  std::vector<int> all;
  if (sched_getaffinity(0, bytes, set) == 0)
    for (int one = 0; one < kMostProcessors; ++one)
      if (CPU_ISSET_S(one, bytes, set)) all.push_back(one);
  CPU_FREE(set);
  return all;
}

bool KernelProcessors::run_on(const std::vector<int>& processors) {
  cpu_set_t* const set = CPU_ALLOC(kMostProcessors);
  const size_t bytes = CPU_ALLOC_SIZE(kMostProcessors);
  CPU_ZERO_S(bytes, set);
  for (const int one : processors) CPU_SET_S(one, bytes, set);
  const bool done = sched_setaffinity(0, bytes, set) == 0;
  CPU_FREE(set);
  return done;
}

// The kernel's word first: older drivers have none. It says -1 where the firmware does not tell.
std::optional<int> node_of(const backend::Table& table, int ordinal, const fs::path& root) {
  if (listed(root / "sys/devices/system/node/online").size() < 2) return {};
  int node = -1;
  const fs::path folder = device_folder(table, ordinal);
  if (!folder.empty() && !(std::ifstream(root / folder / "numa_node") >> node)) node = -1;
  if (node < 0) node = attribute(table, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal).value_or(-1);
  return node < 0 ? std::nullopt : std::optional(node);
}

std::vector<int> processors_of(int node, const fs::path& root) {
  return listed(root / "sys/devices/system/node" / ("node" + std::to_string(node)) / "cpulist");
}

std::string stay_near(const backend::Table& table, int ordinal, Processors& processors,
                      const fs::path& root) {
  const std::optional<int> node = node_of(table, ordinal, root);
  if (!node) return "no node of the host's memory is known to be nearest";
  const std::vector<int> here = processors_of(*node, root), allowed = processors.allowed();
  std::vector<int> both;
  std::ranges::set_intersection(here, allowed, std::back_inserter(both));
  if (both.empty()) return node_text(*node) + ", and none of its processors may be used";
  if (both.size() == allowed.size()) return node_text(*node) + ", and all threads run there";
  if (!processors.run_on(both)) return node_text(*node) + ", and its processors cannot be chosen";
  return node_text(*node) + ": threads run on [" + std::to_string(both.size()) + "] of [" +
         std::to_string(allowed.size()) + "] processors";
}

}  // namespace pyft::server
