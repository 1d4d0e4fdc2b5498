#include "graph/graph_dot.h"

#include <cstdio>
#include <memory>
#include <string>

#include "graph/graph_memory.h"
#include "module/module.h"

namespace softgpu {
namespace {

std::string hex(uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

std::string extent(const Dim3& d) {
  return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z);
}

struct Label {
  std::string operator()(const EmptyOperation&) const { return "EMPTY"; }
  std::string operator()(const KernelOperation& k) const {
    return "KERNEL\\n" + k.launch->kernel->name + "\\n<<<" + extent(k.launch->grid) + " " +
           extent(k.launch->block) + " " + std::to_string(k.launch->dynamic_shared_bytes) + ">>>";
  }
  std::string operator()(const CopyOperation& c) const {
    return "MEMCPY\\n" + hex(c.src) + " to " + hex(c.dst) + "\\n" + std::to_string(c.shape.width) +
           " x " + std::to_string(c.shape.rows) + " x " + std::to_string(c.shape.slices);
  }
  std::string operator()(const FillOperation& f) const {
    return "MEMSET\\n" + hex(f.dst) + "\\n" + std::to_string(f.shape.width) + " x " +
           std::to_string(f.shape.rows) + " of " + hex(f.shape.value);
  }
  std::string operator()(const HostOperation&) const { return "HOST"; }
  std::string operator()(const LibraryOperation& call) const { return "LIBRARY\\n" + call.name; }
  std::string operator()(const PollOperation&) const { return "WAIT VALUE"; }
  std::string operator()(const RecordOperation&) const { return "EVENT RECORD"; }
  std::string operator()(const WaitOperation&) const { return "EVENT WAIT"; }
  std::string operator()(const ChildOperation& child) const {
    return "CHILD GRAPH\\n" + std::to_string(child.graph->nodes().size()) + " nodes";
  }
  std::string operator()(const AllocOperation& a) const {
    return "MEM ALLOC\\n" + hex(a.memory->address) + "\\n" + std::to_string(a.bytes) + " bytes";
  }
  std::string operator()(const FreeOperation& f) const { return "MEM FREE\\n" + hex(f.address); }
};

void print_nodes(const Graph& graph, std::FILE* out) {
  const unsigned long long id = graph.id();
  std::fprintf(out, "subgraph cluster_%llu {\nlabel=\"graph_%llu\"\n", id, id);
  for (const auto& node : graph.nodes()) {
    const unsigned long long at = node->id;
    std::fprintf(out, "node_%llu [shape=record, label=\"{%llu | %s}\"]\n", at, at,
                 std::visit(Label{}, *node->operation).c_str());
    for (const GraphNode* before : node->dependencies) {
      std::fprintf(out, "node_%llu -> node_%llu\n", static_cast<unsigned long long>(before->id),
                   at);
    }
    if (const auto* child = std::get_if<ChildOperation>(node->operation.get())) {
      print_nodes(*child->graph, out);
    }
  }
  std::fprintf(out, "}\n");
}

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

bool print_dot(const Graph& graph, const char* path) {
  const std::unique_ptr<std::FILE, Closer> out(std::fopen(path, "w"));
  if (!out) return false;
  std::fprintf(out.get(), "digraph dot {\n");
  print_nodes(graph, out.get());
  std::fprintf(out.get(), "}\n");
  return std::ferror(out.get()) == 0;
}

}  // namespace softgpu
