// A graph as text for Graphviz.
#ifndef SOFTGPU_GRAPH_GRAPH_DOT_H_
#define SOFTGPU_GRAPH_GRAPH_DOT_H_

#include "graph/graph.h"

namespace softgpu {

// False if the file cannot be written. Precondition: the graph lock is held.
bool print_dot(const Graph& graph, const char* path);

}  // namespace softgpu

#endif  // SOFTGPU_GRAPH_GRAPH_DOT_H_
