#include "work/graph_exec.h"

#include <set>
#include <unordered_map>

#include "device/device.h"
#include "graph/capture.h"
#include "graph/graph_memory.h"
#include "work/activity.h"
#include "work/perform.h"

namespace softgpu {
namespace {

using Plan = std::vector<std::shared_ptr<const Operation>>;

std::unordered_map<const void*, std::shared_ptr<GraphExec>>& execs() {
  static auto* const all =
      std::make_unique<std::unordered_map<const void*, std::shared_ptr<GraphExec>>>().release();
  return *all;
}

const ChildOperation* child_of(const GraphNode& node) {
  return std::get_if<ChildOperation>(node.operation.get());
}

bool acyclic(const Graph& graph) {
  if (graph.ordered().size() != graph.nodes().size()) return false;
  for (const auto& node : graph.nodes()) {
    if (const auto* child = child_of(*node); child && !acyclic(*child->graph)) return false;
  }
  return true;
}

void append(const Graph& graph, Plan* plan) {
  for (const GraphNode* node : graph.ordered()) {
    if (!node->enabled || std::holds_alternative<EmptyOperation>(*node->operation)) continue;
    if (const auto* child = child_of(*node)) {
      append(*child->graph, plan);
    } else {
      plan->push_back(node->operation);
    }
  }
}

// Where the nodes of a graph stand, and where those that a node depends on do.
using Positions = std::unordered_map<const GraphNode*, size_t>;

Positions positions(const Graph& graph) {
  Positions found;
  for (const auto& node : graph.nodes()) found.emplace(node.get(), found.size());
  return found;
}

std::set<size_t> dependencies(const GraphNode& node, const Positions& places) {
  std::set<size_t> found;
  for (const GraphNode* before : node.dependencies) found.insert(places.at(before));
  return found;
}

cudaGraphExecUpdateResult compare(const Graph& mine, const Graph& other, GraphNode** my_node,
                                  GraphNode** other_node) {
  *my_node = *other_node = nullptr;
  if (mine.nodes().size() != other.nodes().size()) return cudaGraphExecUpdateErrorTopologyChanged;
  const Positions my_places = positions(mine), other_places = positions(other);
  for (size_t i = 0; i < mine.nodes().size(); ++i) {
    GraphNode &a = *mine.nodes()[i], &b = *other.nodes()[i];
    *my_node = &a;
    *other_node = &b;
    if (a.operation->index() != b.operation->index()) {
      return cudaGraphExecUpdateErrorNodeTypeChanged;
    }
    if (dependencies(a, my_places) != dependencies(b, other_places)) {
      return cudaGraphExecUpdateErrorTopologyChanged;
    }
    if (const auto* child = child_of(a)) {
      const auto result = compare(*child->graph, *child_of(b)->graph, my_node, other_node);
      if (result != cudaGraphExecUpdateSuccess) return result;
    }
    const auto* alloc = std::get_if<AllocOperation>(a.operation.get());
    if (alloc && alloc->memory != std::get<AllocOperation>(*b.operation).memory) {
      return cudaGraphExecUpdateErrorNotSupported;
    }
  }
  return cudaGraphExecUpdateSuccess;
}

void take_parameters(const Graph& mine, const Graph& other) {
  for (size_t i = 0; i < mine.nodes().size(); ++i) {
    GraphNode &a = *mine.nodes()[i], &b = *other.nodes()[i];
    if (const auto* child = child_of(a)) {
      take_parameters(*child->graph, *child_of(b)->graph);
    } else {
      a.operation = b.operation;
      a.arguments.clear();
    }
  }
}

}  // namespace

// Allocations of the last launch that nothing has freed: a new launch may not hand them out again,
// unless it was told to free them itself.
cudaError_t GraphExec::claim_memory() {
  std::set<uint64_t> freed;
  for (const auto& operation : plan_) {
    if (const auto* free = std::get_if<FreeOperation>(operation.get())) freed.insert(free->address);
    const auto* alloc = std::get_if<AllocOperation>(operation.get());
    if (!alloc || (flags_ & cudaGraphInstantiateFlagAutoFreeOnLaunch)) continue;
    const uint64_t address = alloc->memory->address;
    if (graph_memory_live(address) && !freed.contains(address)) return cudaErrorInvalidValue;
  }
  for (const auto& operation : plan_) {
    if (const auto* alloc = std::get_if<AllocOperation>(operation.get())) {
      set_graph_memory_live(alloc->memory, true);
    } else if (const auto* free = std::get_if<FreeOperation>(operation.get())) {
      if (const auto memory = find_graph_memory(free->address)) {
        set_graph_memory_live(memory, false);
      }
    }
  }
  return cudaSuccess;
}

cudaError_t GraphExec::launch(const std::shared_ptr<Stream>& stream) {
  std::vector<Work> works;
  {
    const GraphLock lock;
    if (any_capture()) {
      const auto captured = capture_operation(stream, ChildOperation{graph_->clone()}, nullptr);
      if (captured) return *captured;
    }
    if (!planned_) append(*graph_, &plan_);
    planned_ = true;
    if (const cudaError_t bad = claim_memory(); bad != cudaSuccess) return bad;
    works.reserve(plan_.size());
    for (const auto& operation : plan_) {
      works.push_back(make_work(operation, stream->device));
      record_activity(*operation, *stream, &works.back());
    }
  }
  device(stream->device).scheduler().submit_all(stream, std::move(works));
  return cudaSuccess;
}

void GraphExec::replace(GraphNode* node, Operation operation) {
  node->graph->replace(node, std::move(operation));
  plan_.clear();
  planned_ = false;
}

cudaError_t GraphExec::replace_child(GraphNode* node, const Graph& child) {
  const auto* mine = child_of(*node);
  if (!mine) return cudaErrorInvalidValue;
  GraphNode *a = nullptr, *b = nullptr;
  if (compare(*mine->graph, child, &a, &b) != cudaGraphExecUpdateSuccess) {
    return cudaErrorInvalidValue;
  }
  take_parameters(*mine->graph, child);
  plan_.clear();
  planned_ = false;
  return cudaSuccess;
}

void GraphExec::set_enabled(GraphNode* node, bool enabled) {
  node->enabled = enabled;
  plan_.clear();
  planned_ = false;
}

cudaGraphExecUpdateResult GraphExec::update(const Graph& from, GraphNode** mine,
                                            GraphNode** other) {
  const cudaGraphExecUpdateResult result = compare(*graph_, from, mine, other);
  if (result != cudaGraphExecUpdateSuccess) return result;
  take_parameters(*graph_, from);
  plan_.clear();
  planned_ = false;
  return result;
}

cudaError_t instantiate(const Graph& graph, uint64_t flags, void** handle) {
  if (!acyclic(graph)) return cudaErrorInvalidValue;
  auto exec = std::make_shared<GraphExec>(graph.clone(), flags);
  *handle = exec.get();
  execs()[exec.get()] = std::move(exec);
  return cudaSuccess;
}

std::shared_ptr<GraphExec> find_exec(const void* handle) {
  const auto found = execs().find(handle);
  return found == execs().end() ? nullptr : found->second;
}

bool drop_exec(const void* handle) {
  return execs().erase(handle) > 0;
}

}  // namespace softgpu
