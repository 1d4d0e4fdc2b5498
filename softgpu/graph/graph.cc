#include "graph/graph.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

namespace softgpu {
namespace {

std::recursive_mutex& graph_mutex() {
  static auto* const mutex = std::make_unique<std::recursive_mutex>().release();
  return *mutex;
}

// What handles stand for. Never destroyed: graphs may be dropped while the process exits.
struct Registry {
  uint64_t next_id = 1;
  std::unordered_map<const void*, std::shared_ptr<Graph>> graphs;
  std::unordered_map<const void*, std::weak_ptr<Graph>> embedded;
  std::unordered_set<const void*> nodes;
  std::unordered_map<const void*, std::unique_ptr<UserObject>> user_objects;
};

Registry& registry() {
  static auto* const all = std::make_unique<Registry>().release();
  return *all;
}

bool contains(const std::vector<GraphNode*>& all, const GraphNode* node) {
  return std::find(all.begin(), all.end(), node) != all.end();
}

void erase(std::vector<GraphNode*>* all, const GraphNode* node) {
  all->erase(std::remove(all->begin(), all->end(), node), all->end());
}

const std::shared_ptr<Graph>* child_of(const GraphNode& node) {
  const auto* child = std::get_if<ChildOperation>(node.operation.get());
  return child ? &child->graph : nullptr;
}

}  // namespace

GraphLock::GraphLock() : lock_(graph_mutex()) {}

Graph::Graph() : id_(registry().next_id++) {}

Graph::~Graph() {
  const GraphLock lock;
  registry().embedded.erase(this);
  for (const auto& node : nodes_) registry().nodes.erase(node.get());
  for (const auto& [object, count] : user_objects) release_user_object(object, count);
}

GraphNode* Graph::add(Operation operation, const std::vector<GraphNode*>& dependencies) {
  auto node = std::make_unique<GraphNode>();
  node->id = node->original = registry().next_id++;
  node->graph = this;
  node->operation = std::make_shared<const Operation>(std::move(operation));
  GraphNode* raw = node.get();
  registry().nodes.insert(raw);
  nodes_.push_back(std::move(node));
  for (GraphNode* before : dependencies) add_edge(before, raw);
  return raw;
}

bool Graph::add_edge(GraphNode* from, GraphNode* to) {
  if (!owns(from) || !owns(to) || from == to || contains(to->dependencies, from)) return false;
  to->dependencies.push_back(from);
  from->dependents.push_back(to);
  return true;
}

bool Graph::remove_edge(GraphNode* from, GraphNode* to) {
  if (!owns(from) || !owns(to) || !contains(to->dependencies, from)) return false;
  erase(&to->dependencies, from);
  erase(&from->dependents, to);
  return true;
}

void Graph::remove(GraphNode* node) {
  for (GraphNode* before : node->dependencies) erase(&before->dependents, node);
  for (GraphNode* after : node->dependents) erase(&after->dependencies, node);
  registry().nodes.erase(node);
  std::erase_if(nodes_, [&](const auto& owned) { return owned.get() == node; });
}

void Graph::replace(GraphNode* node, Operation operation) {
  node->operation = std::make_shared<const Operation>(std::move(operation));
  node->arguments.clear();
}

std::vector<GraphNode*> Graph::ordered() const {
  const auto older = [](const GraphNode* a, const GraphNode* b) { return a->id > b->id; };
  std::priority_queue<GraphNode*, std::vector<GraphNode*>, decltype(older)> ready(older);
  std::unordered_map<const GraphNode*, size_t> missing;
  for (const auto& node : nodes_) {
    missing[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push(node.get());
  }
  std::vector<GraphNode*> order;
  while (!ready.empty()) {
    GraphNode* node = ready.top();
    ready.pop();
    order.push_back(node);
    for (GraphNode* after : node->dependents) {
      if (--missing[after] == 0) ready.push(after);
    }
  }
  return order;
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  std::unordered_map<const GraphNode*, GraphNode*> twins;
  for (const auto& node : nodes_) {
    Operation operation = *node->operation;
    if (const auto* child = child_of(*node)) operation = ChildOperation{(*child)->clone()};
    GraphNode* twin = copy->add(EmptyOperation{}, {});
    twin->operation =
        child_of(*node) ? std::make_shared<const Operation>(std::move(operation)) : node->operation;
    twin->original = node->original;
    twin->enabled = node->enabled;
    twins[node.get()] = twin;
  }
  for (const auto& node : nodes_) {
    for (GraphNode* before : node->dependencies) copy->add_edge(twins[before], twins[node.get()]);
  }
  copy->user_objects = user_objects;
  for (const auto& [object, count] : user_objects) object->references += count;
  return copy;
}

GraphNode* Graph::find_clone(uint64_t original) const {
  for (const auto& node : nodes_) {
    if (node->original == original) return node.get();
    if (const auto* child = child_of(*node)) {
      if (GraphNode* found = (*child)->find_clone(original)) return found;
    }
  }
  return nullptr;
}

bool Graph::has_memory_nodes() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    if (const auto* child = child_of(*node)) return (*child)->has_memory_nodes();
    return std::holds_alternative<AllocOperation>(*node->operation) ||
           std::holds_alternative<FreeOperation>(*node->operation);
  });
}

bool leads_to(const GraphNode* node, const std::vector<GraphNode*>& ends) {
  std::vector<const GraphNode*> open(ends.begin(), ends.end());
  std::unordered_set<const GraphNode*> seen(ends.begin(), ends.end());
  while (!open.empty()) {
    const GraphNode* at = open.back();
    open.pop_back();
    if (at == node) return true;
    for (const GraphNode* before : at->dependencies) {
      if (seen.insert(before).second) open.push_back(before);
    }
  }
  return false;
}

void* publish_graph(const std::shared_ptr<Graph>& graph) {
  registry().graphs[graph.get()] = graph;
  return graph.get();
}

void* publish_embedded(const std::shared_ptr<Graph>& graph) {
  registry().embedded[graph.get()] = graph;
  return graph.get();
}

std::shared_ptr<Graph> find_graph(const void* handle) {
  const auto found = registry().graphs.find(handle);
  if (found != registry().graphs.end()) return found->second;
  const auto inner = registry().embedded.find(handle);
  return inner == registry().embedded.end() ? nullptr : inner->second.lock();
}

bool drop_graph(const void* handle) {
  return registry().graphs.erase(handle) > 0;
}

GraphNode* find_node(const void* handle) {
  if (!registry().nodes.contains(handle)) return nullptr;
  return static_cast<GraphNode*>(const_cast<void*>(handle));
}

UserObject* create_user_object(void (*destroy)(void*), void* data, uint64_t references) {
  auto object = std::make_unique<UserObject>(UserObject{destroy, data, references});
  UserObject* raw = object.get();
  registry().user_objects[raw] = std::move(object);
  return raw;
}

UserObject* find_user_object(const void* handle) {
  const auto found = registry().user_objects.find(handle);
  return found == registry().user_objects.end() ? nullptr : found->second.get();
}

void release_user_object(UserObject* object, uint64_t count) {
  object->references -= std::min(count, object->references);
  if (object->references) return;
  object->destroy(object->data);
  registry().user_objects.erase(object);
}

}  // namespace softgpu
