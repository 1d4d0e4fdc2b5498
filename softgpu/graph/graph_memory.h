// Memory that the nodes of graphs allocate and free. A node has its address from its creation on,
// so the memory is there as long as a graph, a launch or the program can name it.
#ifndef SOFTGPU_GRAPH_GRAPH_MEMORY_H_
#define SOFTGPU_GRAPH_GRAPH_MEMORY_H_

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/graph.h"

namespace softgpu {

class GraphMemory {
 public:
  GraphMemory(int device, uint64_t address, uint64_t bytes);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  const int device;
  const uint64_t address, bytes;
};

// Memory for a new node: what an earlier node of the graph has freed before `dependencies`, else
// new memory.
cudaError_t take_graph_memory(const Graph& graph, const std::vector<GraphNode*>& dependencies,
                              int device, uint64_t bytes, std::shared_ptr<GraphMemory>* memory);

// Nodes of cudaMallocAsync and cudaFreeAsync.
cudaError_t add_alloc_node(Graph* graph, const std::vector<GraphNode*>& dependencies, int device,
                           uint64_t bytes, GraphNode** node);
cudaError_t add_free_node(Graph* graph, const std::vector<GraphNode*>& dependencies,
                          uint64_t address, GraphNode** node);

// Memory is live from the launch that allocates it until something frees it. All thread-safe.
std::shared_ptr<GraphMemory> find_graph_memory(uint64_t address);  // empty if it is none
bool graph_memory_live(uint64_t address);
void set_graph_memory_live(const std::shared_ptr<GraphMemory>& memory, bool live);

struct GraphMemoryUse {
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};
GraphMemoryUse graph_memory_use(int device);
void reset_graph_memory_high(int device, bool used);

}  // namespace softgpu

#endif  // SOFTGPU_GRAPH_GRAPH_MEMORY_H_
