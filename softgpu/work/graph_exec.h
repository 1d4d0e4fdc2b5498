// Instantiated graphs: a clone of the graph, and its operations in the order of their execution.
#ifndef SOFTGPU_WORK_GRAPH_EXEC_H_
#define SOFTGPU_WORK_GRAPH_EXEC_H_

#include <driver_types.h>

#include <memory>
#include <vector>

#include "graph/graph.h"
#include "stream/stream.h"

namespace softgpu {

class GraphExec {
 public:
  GraphExec(std::shared_ptr<Graph> clone, uint64_t flags)
      : graph_(std::move(clone)), flags_(flags) {}

  // Puts the nodes on the stream one after the other; into the stream's graph while it is captured.
  // Changes made later do not reach launches made before. Takes the graph lock.
  cudaError_t launch(const std::shared_ptr<Stream>& stream);

  // Precondition of the rest: the graph lock is held.
  // The clone of a node of the graph that was instantiated; nullptr if there is none.
  GraphNode* node(const GraphNode& original) const { return graph_->find_clone(original.original); }
  void replace(GraphNode* node, Operation operation);
  cudaError_t replace_child(GraphNode* node, const Graph& child);
  void set_enabled(GraphNode* node, bool enabled);
  // Takes the parameters of a graph of the same form; else says what differs and changes nothing.
  cudaGraphExecUpdateResult update(const Graph& from, GraphNode** mine, GraphNode** other);
  uint64_t flags() const { return flags_; }

 private:
  cudaError_t claim_memory();

  std::shared_ptr<Graph> graph_;
  const uint64_t flags_;
  std::vector<std::shared_ptr<const Operation>> plan_;  // empty: to be made again
  bool planned_ = false;
};

// cudaErrorInvalidValue if the graph has a cycle. Precondition of all: the graph lock is held.
cudaError_t instantiate(const Graph& graph, uint64_t flags, void** handle);
std::shared_ptr<GraphExec> find_exec(const void* handle);  // empty if there is none
bool drop_exec(const void* handle);

}  // namespace softgpu

#endif  // SOFTGPU_WORK_GRAPH_EXEC_H_
