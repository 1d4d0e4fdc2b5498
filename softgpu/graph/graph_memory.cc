#include "graph/graph_memory.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "device/device.h"

namespace softgpu {
namespace {

// A lock of its own, below the scheduler's: memory may be given back when work is finished.
struct Memories {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<GraphMemory>> all;
  std::map<uint64_t, std::shared_ptr<GraphMemory>> live;
  std::map<int, GraphMemoryUse> use;
};

Memories& memories() {
  static auto* const all = std::make_unique<Memories>().release();
  return *all;
}

std::unordered_set<const GraphNode*> ancestors(const std::vector<GraphNode*>& ends) {
  std::vector<const GraphNode*> open(ends.begin(), ends.end());
  std::unordered_set<const GraphNode*> seen(ends.begin(), ends.end());
  while (!open.empty()) {
    const GraphNode* at = open.back();
    open.pop_back();
    for (const GraphNode* before : at->dependencies) {
      if (seen.insert(before).second) open.push_back(before);
    }
  }
  return seen;
}

struct Candidate {
  std::shared_ptr<GraphMemory> memory;
  const GraphNode* freed_by = nullptr;
};

// Each memory of the graph with the node that freed it last, if it is free.
std::map<uint64_t, Candidate> memory_of(const Graph& graph) {
  std::map<uint64_t, Candidate> found;
  for (const auto& node : graph.nodes()) {
    if (const auto* alloc = std::get_if<AllocOperation>(node->operation.get())) {
      found[alloc->memory->address] = {alloc->memory, nullptr};
    } else if (const auto* free = std::get_if<FreeOperation>(node->operation.get())) {
      found[free->address].freed_by = node.get();
    }
  }
  return found;
}

}  // namespace

GraphMemory::GraphMemory(int device, uint64_t address, uint64_t bytes)
    : device(device), address(address), bytes(bytes) {
  const std::scoped_lock lock(memories().mutex);
  GraphMemoryUse& use = memories().use[device];
  use.reserved += bytes;
  use.reserved_high = std::max(use.reserved_high, use.reserved);
}

GraphMemory::~GraphMemory() {
  {
    const std::scoped_lock lock(memories().mutex);
    memories().all.erase(address);
    memories().use[device].reserved -= bytes;
  }
  softgpu::device(device).memory().release(address);
}

cudaError_t take_graph_memory(const Graph& graph, const std::vector<GraphNode*>& dependencies,
                              int device_index, uint64_t bytes,
                              std::shared_ptr<GraphMemory>* memory) {
  const auto before = ancestors(dependencies);
  for (const auto& [address, candidate] : memory_of(graph)) {
    const auto& found = candidate.memory;
    if (!found || !candidate.freed_by || !before.contains(candidate.freed_by)) continue;
    if (found->device != device_index || found->bytes < bytes || found->bytes / 2 > bytes) continue;
    if (!*memory || found->bytes < (*memory)->bytes) *memory = found;
  }
  if (*memory) return cudaSuccess;
  uint64_t address = 0;
  const cudaError_t bad = device(device_index).memory().allocate(bytes, &address);
  if (bad != cudaSuccess) return bad;
  *memory = std::make_shared<GraphMemory>(device_index, address, round_up(bytes, kSmallUnit));
  const std::scoped_lock lock(memories().mutex);
  memories().all[address] = *memory;
  return cudaSuccess;
}

cudaError_t add_alloc_node(Graph* graph, const std::vector<GraphNode*>& dependencies, int device,
                           uint64_t bytes, GraphNode** node) {
  std::shared_ptr<GraphMemory> memory;
  const cudaError_t bad = take_graph_memory(*graph, dependencies, device, bytes, &memory);
  if (bad != cudaSuccess) return bad;
  *node = graph->add(AllocOperation{std::move(memory), bytes}, dependencies);
  return cudaSuccess;
}

cudaError_t add_free_node(Graph* graph, const std::vector<GraphNode*>& dependencies,
                          uint64_t address, GraphNode** node) {
  if (!find_graph_memory(address)) return cudaErrorInvalidValue;
  const auto all = memory_of(*graph);
  const auto own = all.find(address);
  if (own != all.end() && own->second.freed_by) return cudaErrorInvalidValue;  // freed twice
  *node = graph->add(FreeOperation{address}, dependencies);
  return cudaSuccess;
}

std::shared_ptr<GraphMemory> find_graph_memory(uint64_t address) {
  const std::scoped_lock lock(memories().mutex);
  const auto found = memories().all.find(address);
  return found == memories().all.end() ? nullptr : found->second.lock();
}

bool graph_memory_live(uint64_t address) {
  const std::scoped_lock lock(memories().mutex);
  return memories().live.contains(address);
}

void set_graph_memory_live(const std::shared_ptr<GraphMemory>& memory, bool live) {
  const std::scoped_lock lock(memories().mutex);
  GraphMemoryUse& use = memories().use[memory->device];
  if (live && memories().live.emplace(memory->address, memory).second) {
    use.used += memory->bytes;
    use.used_high = std::max(use.used_high, use.used);
  } else if (!live && memories().live.erase(memory->address)) {
    use.used -= memory->bytes;
  }
}

GraphMemoryUse graph_memory_use(int device) {
  const std::scoped_lock lock(memories().mutex);
  return memories().use[device];
}

void reset_graph_memory_high(int device, bool used) {
  const std::scoped_lock lock(memories().mutex);
  GraphMemoryUse& use = memories().use[device];
  if (used) {
    use.used_high = use.used;
  } else {
    use.reserved_high = use.reserved;
  }
}

}  // namespace softgpu
