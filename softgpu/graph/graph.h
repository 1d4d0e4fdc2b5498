// Graphs: operations and the edges between them.
//
// One lock guards all graphs and captures (GraphLock); graph calls are rare, launches of an
// instantiated graph hold it only while they look at the graph's state.
#ifndef SOFTGPU_GRAPH_GRAPH_H_
#define SOFTGPU_GRAPH_GRAPH_H_

#include <driver_types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "stream/operation.h"

namespace softgpu {

// Recursive: a call that is captured while the lock is held may allocate graph memory.
class GraphLock {
 public:
  GraphLock();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

class Graph;

struct GraphNode {
  uint64_t id = 0;        // in order of creation, over all graphs
  uint64_t original = 0;  // the node that this one is a clone of; itself if none
  Graph* graph = nullptr;
  std::shared_ptr<const Operation> operation;
  std::vector<GraphNode*> dependencies, dependents;
  bool enabled = true;  // of nodes of instantiated graphs
  // What a call hands out by pointer; valid until the node changes.
  std::vector<void*> arguments;
};

// Destroy callbacks that run when the last reference goes: what cudaUserObject_t means.
struct UserObject {
  void (*destroy)(void*) = nullptr;
  void* data = nullptr;
  uint64_t references = 0;
};

class Graph : public std::enable_shared_from_this<Graph> {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  GraphNode* add(Operation operation, const std::vector<GraphNode*>& dependencies);
  // False if an edge exists already, would lead a node to itself, or leaves the graph.
  bool add_edge(GraphNode* from, GraphNode* to);
  bool remove_edge(GraphNode* from, GraphNode* to);
  void remove(GraphNode* node);
  void replace(GraphNode* node, Operation operation);
  bool owns(const GraphNode* node) const { return node && node->graph == this; }

  const std::vector<std::unique_ptr<GraphNode>>& nodes() const { return nodes_; }
  // Dependencies first, the oldest ready node next; shorter than nodes() if there is a cycle.
  std::vector<GraphNode*> ordered() const;
  // Nodes, edges and child graphs; shares the operations, which never change.
  std::shared_ptr<Graph> clone() const;
  // The clone of a node in this graph or its child graphs.
  GraphNode* find_clone(uint64_t original) const;
  // Whether a node of that kind is in it or in a child graph.
  bool has_memory_nodes() const;

  std::map<UserObject*, uint64_t> user_objects;
  uint64_t id() const { return id_; }

 private:
  const uint64_t id_;
  std::vector<std::unique_ptr<GraphNode>> nodes_;
};

// Whether `node` is one of `ends` or leads to one.
bool leads_to(const GraphNode* node, const std::vector<GraphNode*>& ends);

// Handles given to the program. Precondition: the graph lock is held.
void* publish_graph(const std::shared_ptr<Graph>& graph);
// Of a node's own graph, which lives as long as the node and cannot be dropped.
void* publish_embedded(const std::shared_ptr<Graph>& graph);
std::shared_ptr<Graph> find_graph(const void* handle);  // empty if there is none
bool drop_graph(const void* handle);
GraphNode* find_node(const void* handle);  // nullptr if there is none

// Drops references of a user object; runs its callback with the last one.
void release_user_object(UserObject* object, uint64_t count);
UserObject* find_user_object(const void* handle);
UserObject* create_user_object(void (*destroy)(void*), void* data, uint64_t references);

}  // namespace softgpu

#endif  // SOFTGPU_GRAPH_GRAPH_H_
