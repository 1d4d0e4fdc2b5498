// Handles of graphs and instantiated graphs, and the device each belongs to.
#ifndef PYFT_CLIENT_GRAPH_GRAPH_H_
#define PYFT_CLIENT_GRAPH_GRAPH_H_

#include "client/device/device.h"

namespace pyft::client {

// 0: there are too many.
uint64_t mint_graph(Device& device, HandleKind kind);
// The graph of a handle that was minted before is there now.
void note_graph(Device& device, uint64_t handle);
// nullptr: no live handle of that kind.
Device* device_of_graph(const void* handle, HandleKind kind);
// False: it is not alive. Its number may be used again when that has been said to the server, or
// the server has none of it: end_handle().
bool forget_graph(uint64_t handle);

// The first *count of the graph's nodes, null behind the last; *count becomes how many.
void give_out_nodes(uint64_t graph, size_t total, void** nodes, size_t* count);
void forget_nodes(uint64_t graph);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_GRAPH_GRAPH_H_
