// Handles of graphs and instantiated graphs, and the device each belongs to.
#ifndef PYFT_CLIENT_GRAPH_H_
#define PYFT_CLIENT_GRAPH_H_

#include "client/device.h"

namespace pyft::client {

uint64_t mint_graph(Device& device, HandleKind kind);
// nullptr: no live handle of that kind.
Device* device_of_graph(const void* handle, HandleKind kind);
void forget_graph(uint64_t handle);

// The first *count of the graph's nodes, null behind the last; *count becomes how many.
void give_out_nodes(uint64_t graph, size_t total, void** nodes, size_t* count);
void forget_nodes(uint64_t graph);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_GRAPH_H_
