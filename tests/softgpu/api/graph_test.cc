// Graphs: nodes, edges, launches, changes of what has been instantiated.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "check.h"
#include "gate.h"

namespace {

cudaStream_t stream() {
  cudaStream_t made;
  CHECK_EQ(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), cudaSuccess);
  return made;
}

int* device_int() {
  void* out = nullptr;
  CHECK_EQ(cudaMalloc(&out, sizeof(int)), cudaSuccess);
  return static_cast<int*>(out);
}

int value_of(const int* address) {
  int value = -1;
  CHECK_EQ(cudaMemcpy(&value, address, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  return value;
}

cudaGraph_t new_graph() {
  cudaGraph_t made;
  CHECK_EQ(cudaGraphCreate(&made, 0), cudaSuccess);
  return made;
}

cudaGraphExec_t instantiate(cudaGraph_t graph, unsigned long long flags = 0) {
  cudaGraphExec_t made = nullptr;
  CHECK_EQ(cudaGraphInstantiate(&made, graph, flags), cudaSuccess);
  return made;
}

cudaMemsetParams fill(int* target, unsigned value) {
  return {target, 0, value, 4, 1, 1};
}

cudaGraphNode_t add_fill(cudaGraph_t graph, int* target, unsigned value,
                         std::vector<cudaGraphNode_t> before = {}) {
  cudaGraphNode_t made;
  const cudaMemsetParams params = fill(target, value);
  CHECK_EQ(cudaGraphAddMemsetNode(&made, graph, before.data(), before.size(), &params),
           cudaSuccess);
  return made;
}

struct Note {
  std::string* log;
  char what;
};

cudaGraphNode_t add_note(cudaGraph_t graph, Note* note, std::vector<cudaGraphNode_t> before = {}) {
  cudaGraphNode_t made;
  const cudaHostNodeParams params{[](void* data) {
                                    const Note& n = *static_cast<Note*>(data);
                                    n.log->push_back(n.what);
                                  },
                                  note};
  CHECK_EQ(cudaGraphAddHostNode(&made, graph, before.data(), before.size(), &params), cudaSuccess);
  return made;
}

void run(cudaGraphExec_t exec, cudaStream_t s) {
  CHECK_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

}  // namespace

TEST(nodes_run_after_what_they_depend_on) {
  std::string log;
  Note notes[] = {{&log, 'a'}, {&log, 'b'}, {&log, 'c'}, {&log, 'd'}};
  cudaGraph_t graph = new_graph();
  cudaGraphNode_t a = add_note(graph, &notes[0]), b = add_note(graph, &notes[1]),
                  c = add_note(graph, &notes[2]), d = add_note(graph, &notes[3]);
  const cudaGraphNode_t from[] = {d, c, a}, to[] = {c, a, b};
  CHECK_EQ(cudaGraphAddDependencies(graph, from, to, nullptr, 3), cudaSuccess);
  CHECK_EQ(cudaGraphAddDependencies(graph, from, to, nullptr, 1), cudaErrorInvalidValue);
  cudaStream_t s = stream();
  cudaGraphExec_t exec = instantiate(graph);
  run(exec, s);
  CHECK_EQ(log, "dcab");
  CHECK_EQ(cudaGraphAddDependencies(graph, &b, &d, nullptr, 1), cudaSuccess);
  cudaGraphExec_t none;
  CHECK_EQ(cudaGraphInstantiate(&none, graph, 0), cudaErrorInvalidValue);  // a cycle
  CHECK_EQ(cudaGraphRemoveDependencies(graph, &b, &d, nullptr, 1), cudaSuccess);
  CHECK_EQ(cudaGraphDestroyNode(c), cudaSuccess);
  CHECK_EQ(cudaGraphDestroyNode(c), cudaErrorInvalidValue);
  log.clear();
  run(instantiate(graph), s);
  CHECK_EQ(log, "abd");  // without c nothing holds d up or a back: oldest first
  log.clear();
  run(exec, s);  // what has been instantiated stays as it was
  CHECK_EQ(log, "dcab");
}

TEST(copies_read_the_host_at_each_launch) {
  void* pinned = nullptr;
  CHECK_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  int *source = static_cast<int*>(pinned), *target = device_int();
  cudaStream_t s = stream();
  cudaGraph_t graph;
  CHECK_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  CHECK_EQ(cudaMemcpyAsync(target, source, 4, cudaMemcpyHostToDevice, s), cudaSuccess);
  CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  cudaGraphExec_t exec = instantiate(graph);
  for (int value : {3, 5}) {
    *source = value;
    run(exec, s);
    CHECK_EQ(value_of(target), value);
  }
  Gate gate;
  gate.block(s);
  *source = 7;
  CHECK_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  *source = 9;  // the stream has not got there yet
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess);
  CHECK_EQ(value_of(target), 9);
}

TEST(parameters_can_be_read_and_changed) {
  int *a = device_int(), *b = device_int();
  cudaStream_t s = stream();
  cudaGraph_t graph = new_graph();
  cudaGraphNode_t node = add_fill(graph, a, 1);
  cudaGraphNodeType type;
  CHECK_EQ(cudaGraphNodeGetType(node, &type), cudaSuccess);
  CHECK_EQ(type, cudaGraphNodeTypeMemset);
  cudaMemsetParams params{};
  CHECK_EQ(cudaGraphMemsetNodeGetParams(node, &params), cudaSuccess);
  CHECK(params.dst == a && params.value == 1 && params.elementSize == 4 && params.width == 1);
  cudaMemcpy3DParms wrong{};
  CHECK_EQ(cudaGraphMemcpyNodeGetParams(node, &wrong), cudaErrorInvalidValue);

  cudaGraphExec_t exec = instantiate(graph);
  params = fill(a, 2);
  CHECK_EQ(cudaGraphExecMemsetNodeSetParams(exec, node, &params), cudaSuccess);
  Gate gate;
  gate.block(s);
  CHECK_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  params = fill(a, 3);
  CHECK_EQ(cudaGraphExecMemsetNodeSetParams(exec, node, &params), cudaSuccess);
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess);
  CHECK_EQ(value_of(a), 2);  // launched before the second change
  run(exec, s);
  CHECK_EQ(value_of(a), 3);

  params = fill(b, 4);
  CHECK_EQ(cudaGraphMemsetNodeSetParams(node, &params), cudaSuccess);
  cudaGraphExecUpdateResultInfo info;
  CHECK_EQ(cudaGraphExecUpdate(exec, graph, &info), cudaSuccess);
  run(exec, s);
  CHECK_EQ(value_of(b), 4);
  CHECK_EQ(cudaGraphNodeSetEnabled(exec, node, 0), cudaSuccess);
  CHECK_EQ(cudaMemset(b, 0, 4), cudaSuccess);
  run(exec, s);
  CHECK_EQ(value_of(b), 0);
  add_fill(graph, a, 5, {node});
  CHECK_EQ(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
  CHECK_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  CHECK_EQ(cudaGetErrorString(cudaErrorGraphExecUpdateFailure) != nullptr, true);
}

TEST(child_graphs_and_clones_are_copies) {
  int *a = device_int(), *b = device_int();
  cudaStream_t s = stream();
  cudaGraph_t inner = new_graph(), outer = new_graph(), clone, embedded;
  cudaGraphNode_t fill_a = add_fill(inner, a, 1), child, found;
  CHECK_EQ(cudaGraphAddChildGraphNode(&child, outer, nullptr, 0, inner), cudaSuccess);
  add_fill(inner, b, 2);  // too late for the child
  add_fill(outer, a, 3, {child});
  CHECK_EQ(cudaMemset(b, 0, 4), cudaSuccess);
  cudaGraphExec_t exec = instantiate(outer);
  run(exec, s);
  CHECK_EQ(value_of(a), 3);
  CHECK_EQ(value_of(b), 0);
  CHECK_EQ(cudaGraphChildGraphNodeGetGraph(child, &embedded), cudaSuccess);
  CHECK(embedded != inner);
  CHECK_EQ(cudaGraphDestroy(embedded), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphClone(&clone, inner), cudaSuccess);
  CHECK_EQ(cudaGraphNodeFindInClone(&found, fill_a, clone), cudaSuccess);
  CHECK(found != fill_a);
  cudaGraph_t captured;
  CHECK_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  CHECK_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  CHECK_EQ(cudaStreamEndCapture(s, &captured), cudaSuccess);
  size_t count = 1;
  CHECK_EQ(cudaGraphGetNodes(captured, &found, &count), cudaSuccess);
  cudaGraphNodeType type;
  CHECK_EQ(cudaGraphNodeGetType(found, &type), cudaSuccess);
  CHECK_EQ(type, cudaGraphNodeTypeGraph);
  CHECK_EQ(cudaMemset(a, 0, 4), cudaSuccess);
  run(instantiate(captured), s);
  CHECK_EQ(value_of(a), 3);
}

TEST(event_nodes_order_streams_outside) {
  int* target = device_int();
  cudaStream_t s = stream(), other = stream();
  cudaEvent_t begin, end;
  CHECK_EQ(cudaEventCreate(&begin), cudaSuccess);
  CHECK_EQ(cudaEventCreate(&end), cudaSuccess);
  cudaGraph_t graph;
  CHECK_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  CHECK_EQ(cudaStreamWaitEvent(s, begin, cudaEventWaitExternal), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(target, 1, 4, s), cudaSuccess);
  CHECK_EQ(cudaEventRecordWithFlags(end, s, cudaEventRecordExternal), cudaSuccess);
  CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  CHECK_EQ(cudaMemset(target, 0, 4), cudaSuccess);
  Gate gate;
  gate.block(other);
  CHECK_EQ(cudaEventRecord(begin, other), cudaSuccess);
  CHECK_EQ(cudaGraphLaunch(instantiate(graph), s), cudaSuccess);
  CHECK_EQ(cudaEventQuery(end), cudaErrorNotReady);
  gate.open();
  CHECK_EQ(cudaEventSynchronize(end), cudaSuccess);
  CHECK_EQ(value_of(target), 0x01010101);
}

TEST(memory_of_graphs) {
  cudaStream_t s = stream();
  void *first = nullptr, *second = nullptr;
  cudaGraph_t graph;
  CHECK_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  CHECK_EQ(cudaMallocAsync(&first, 4096, s), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(first, 1, 4096, s), cudaSuccess);
  CHECK_EQ(cudaFreeAsync(first, s), cudaSuccess);
  CHECK_EQ(cudaMallocAsync(&second, 4096, s), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(second, 2, 4096, s), cudaSuccess);
  CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  CHECK(first == second);  // freed before in the same graph
  cudaGraphExec_t once = instantiate(graph);
  cudaGraphExec_t freeing = instantiate(graph, cudaGraphInstantiateFlagAutoFreeOnLaunch);
  run(once, s);
  CHECK_EQ(value_of(static_cast<int*>(second)), 0x02020202);
  CHECK_EQ(cudaGraphLaunch(once, s), cudaErrorInvalidValue);  // still allocated
  run(freeing, s);
  run(freeing, s);
  CHECK_EQ(cudaFreeAsync(second, s), cudaSuccess);
  CHECK_EQ(cudaFreeAsync(second, s), cudaErrorInvalidValue);
  run(once, s);
  CHECK_EQ(cudaFree(second), cudaSuccess);
  uint64_t reserved = 0;
  CHECK_EQ(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved),
           cudaSuccess);
  CHECK(reserved >= 4096);
  CHECK_EQ(cudaGraphExecDestroy(once), cudaSuccess);
  CHECK_EQ(cudaGraphExecDestroy(freeing), cudaSuccess);
  CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
  CHECK_EQ(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved),
           cudaSuccess);
  CHECK_EQ(reserved, 0u);
}

// A box of 2 x 3 x 2 bytes out of one of 4 x 4 x 2, at once and as a node.
TEST(boxes_are_copied_by_their_pitches) {
  unsigned char source[32], result[12];
  for (int i = 0; i < 32; ++i) source[i] = static_cast<unsigned char>(i);
  void* device = nullptr;
  CHECK_EQ(cudaMalloc(&device, 12), cudaSuccess);
  cudaMemcpy3DParms box{};
  box.srcPtr = {source, 4, 4, 4};
  box.srcPos = {1, 1, 0};
  box.dstPtr = {device, 2, 2, 3};
  box.extent = {2, 3, 2};
  box.kind = cudaMemcpyHostToDevice;
  const auto check = [&](unsigned char first) {
    CHECK_EQ(cudaMemcpy(result, device, 12, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK_EQ(static_cast<int>(result[0]), static_cast<int>(first));
    CHECK_EQ(static_cast<int>(result[3]), 10);
    CHECK_EQ(static_cast<int>(result[6]), 21);
    CHECK_EQ(static_cast<int>(result[11]), 30);
  };
  CHECK_EQ(cudaMemcpy3D(&box), cudaSuccess);
  check(5);
  cudaGraph_t graph = new_graph();
  cudaGraphNode_t node;
  CHECK_EQ(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &box), cudaSuccess);
  cudaMemcpy3DParms read{};
  CHECK_EQ(cudaGraphMemcpyNodeGetParams(node, &read), cudaSuccess);
  CHECK(read.srcPtr.ptr == source + 5 && read.srcPtr.ysize == 4 && read.extent.depth == 2);
  source[5] = 77;
  run(instantiate(graph), stream());
  check(77);
  box.extent.height = 0;
  CHECK_EQ(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &box), cudaErrorInvalidValue);
}

TEST(driver_calls_see_the_same_graphs) {
  int* target = device_int();
  cudaStream_t s = stream();
  CUgraph graph;
  CUgraphNode node;
  CHECK_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  const CUDA_MEMSET_NODE_PARAMS params{reinterpret_cast<CUdeviceptr>(target), 0, 6, 4, 1, 1};
  CHECK_EQ(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &params, nullptr), CUDA_SUCCESS);
  CUgraphExec exec;
  CHECK_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  CHECK_EQ(cuGraphLaunch(exec, s), CUDA_SUCCESS);
  CHECK_EQ(cuStreamSynchronize(s), CUDA_SUCCESS);
  CHECK_EQ(value_of(target), 6);
  CHECK_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
  CHECK_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  CUgraphConditionalHandle handle;
  CHECK_EQ(cuGraphConditionalHandleCreate(&handle, graph, nullptr, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(user_objects_live_as_long_as_graphs_that_keep_them) {
  static int destroyed = 0;
  cudaUserObject_t object;
  CHECK_EQ(cudaUserObjectCreate(
               &object, nullptr, [](void*) { ++destroyed; }, 1, cudaUserObjectNoDestructorSync),
           cudaSuccess);
  cudaGraph_t graph = new_graph();
  CHECK_EQ(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove), cudaSuccess);
  cudaGraphExec_t exec = instantiate(graph);
  CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
  CHECK_EQ(destroyed, 0);
  CHECK_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  CHECK_EQ(destroyed, 1);
}

CHECK_MAIN
