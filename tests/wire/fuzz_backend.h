// A backend for the dispatch fuzzer. fakes.cc has its functions for generated commands, by the
// records; here are those that hand-written handlers call.
#ifndef PYFT_TESTS_WIRE_FUZZ_BACKEND_H_
#define PYFT_TESTS_WIRE_FUZZ_BACKEND_H_

#include "api/cudnn_graph.h"
#include "api/mock_table.h"
#include "wire/fake_calls.h"

namespace fuzz_backend {

inline constexpr size_t kMostParameters = 1000;

inline CUresult write_device(CUdeviceptr, const void* from, size_t bytes, CUstream) {
  look_at(from, bytes);
  return CUDA_SUCCESS;
}
inline CUresult read_device(void* to, CUdeviceptr, size_t bytes, CUstream) {
  std::memset(to, 1, bytes);
  return CUDA_SUCCESS;
}
// Where the program had it: what lies elsewhere in a replay ends the process.
inline CUresult address_range(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  *base = address, *bytes = size_t{2} << 20;
  return CUDA_SUCCESS;
}
inline CUresult load_module(CUmodule* module, const void* image) {
  look_at(image, 16);
  *module = new_object<CUmodule>();
  return CUDA_SUCCESS;
}
inline CUresult get_function(CUfunction* function, CUmodule, const char* name) {
  look_at(name, std::strlen(name));
  *function = new_object<CUfunction>();
  return fails() ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
inline CUresult get_global(CUdeviceptr* address, size_t* bytes, CUmodule, const char* name) {
  *address = *bytes = std::strlen(name);
  return fails() ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
// Few parameters, or more than the server keeps.
inline CUresult parameter(CUfunction, size_t index, size_t* offset, size_t* bytes) {
  static size_t count = 0;
  if (index == 0) count = once_in(64) ? kMostParameters : luck().below(4);
  *offset = index * 8, *bytes = 8;
  return index >= count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void**, void** extra) {
  if (extra) look_at(extra[1], *static_cast<size_t*>(extra[3]));  // without parameters: none
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult launch_with(const CUlaunchConfig* config, CUfunction, void**, void** extra) {
  look_at(config->attrs, config->numAttrs * sizeof(CUlaunchAttribute));
  if (extra) look_at(extra[1], *static_cast<size_t*>(extra[3]));  // without parameters: none
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult end_capture(CUstream, CUgraph* graph) {
  *graph = new_object<CUgraph>();
  return fails() ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
inline CUresult dot_print(CUgraph, const char* path, unsigned) {
  look_at(path, std::strlen(path));
  return CUDA_SUCCESS;
}
inline CUresult graph_nodes(CUgraph, CUgraphNode* nodes, size_t* count) {
  if (!nodes) *count = 2;
  for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = new_object<CUgraphNode>();
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
// Sometimes more than fit one answer.
inline CUresult dependencies(CUgraphNode, CUgraphNode* before, CUgraphEdgeData*, size_t* count) {
  if (!before) *count = once_in(8) ? 1000 : 1;
  for (size_t i = 0; before && i < *count; ++i) before[i] = new_object<CUgraphNode>();
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult node_parameters(CUgraphNode, CUDA_KERNEL_NODE_PARAMS* out) {
  static uint64_t value = 1;
  static void* values[kMostParameters];
  for (void*& each : values) each = &value;
  *out = {};
  out->func = new_object<CUfunction>();
  out->kernelParams = once_in(8) ? nullptr : values;
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult set_node(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS* params) {
  look_at(params->extra[1], *static_cast<size_t*>(params->extra[3]));
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult set_exec_node(CUgraphExec, CUgraphNode node,
                              const CUDA_KERNEL_NODE_PARAMS* params) {
  return set_node(node, params);
}
inline CUresult function_count(unsigned* count, CUmodule) {
  *count = 2;
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult functions(CUfunction* out, unsigned count, CUmodule) {
  for (unsigned i = 0; i < count; ++i) out[i] = new_object<CUfunction>();
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult function_name(const char** out, CUfunction) {
  static const std::string long_name(5000, 'k');
  *out = once_in(8) ? long_name.c_str() : "kernel";
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult is_capturing(CUstream, CUstreamCaptureStatus* status) {
  *status = once_in(8) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
template <class Number>
CUresult tiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void*,
               const cuuint64_t* sizes, const cuuint64_t* strides, const Number* box,
               const Number* more) {
  look_at(sizes, rank * sizeof *sizes), look_at(strides, (rank - 1) * sizeof *strides);
  look_at(box, rank * sizeof *box), look_at(more, rank * sizeof *more);
  write_to(map, sizeof *map);
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
inline CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* at,
                             const cuuint64_t* sizes, const cuuint64_t* strides,
                             const cuuint32_t* box, const cuuint32_t* element_strides,
                             CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                             CUtensorMapFloatOOBfill) {
  return tiled(map, type, rank, at, sizes, strides, box, element_strides);
}
inline CUresult encode_im2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* at,
                              const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower,
                              const int* upper, cuuint32_t, cuuint32_t,
                              const cuuint32_t* element_strides, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  look_at(element_strides, rank * sizeof *element_strides);
  return tiled(map, type, rank, at, sizes, strides, lower, upper);
}
inline cublasStatus_t attribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                const void* value, size_t bytes) {
  look_at(value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int requested,
                                cublasLtMatmulHeuristicResult_t* results, int* count) {
  std::memset(static_cast<void*>(results), 1, static_cast<size_t>(requested) * sizeof *results);
  *count = requested;
  return fails() ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

inline int make_descriptor(int, void* out) {
  if (fails()) return 1;
  make_object(out);
  return 0;
}
inline int set_attribute(void*, int, int type, int64_t count, void* elements) {
  look_at(elements, static_cast<size_t>(count) * pyft::graph::element_bytes(type));
  return fails() ? 1 : 0;
}
// Of an attribute with more elements than asked for it tells how many there are.
inline int get_attribute(void*, int, int type, int64_t requested, void* count, void* elements) {
  const size_t bytes = static_cast<size_t>(requested) * pyft::graph::element_bytes(type);
  if (type == pyft::graph::kDescriptor)
    look_at(elements, bytes);
  else
    write_to(elements, bytes);
  const int64_t there = once_in(4) ? requested + 1 : requested;
  std::memcpy(count, &there, sizeof there);
  return fails() ? 1 : 0;
}
// Of a batch of one.
inline int describe_tensor(void*, int requested, void* type, void* rank, void* sizes,
                           void* strides) {
  const int three = 3, one = 1;
  write_to(type, sizeof three);
  std::memcpy(rank, &three, sizeof three);
  write_to(strides, static_cast<size_t>(requested) * sizeof three);
  for (int i = 0; sizes && i < requested; ++i)
    std::memcpy(static_cast<int*>(sizes) + i, &one, sizeof one);
  return fails() ? 1 : 0;
}
inline void look_at_labels(const void* labels, const void* label_lengths,
                           const void* input_lengths) {
  int length = 0;
  std::memcpy(&length, label_lengths, sizeof length);
  look_at(labels, static_cast<size_t>(length) * sizeof length);
  look_at(input_lengths, sizeof length);
}
inline int loss(void*, void*, void*, void* labels, void* label_lengths, void* input_lengths, void*,
                void*, void*, int, void*, void*, uint64_t) {
  look_at_labels(labels, label_lengths, input_lengths);
  return fails() ? 1 : 0;
}
inline int loss_workspace(void*, void*, void*, void* labels, void* label_lengths,
                          void* input_lengths, int, void*, void* bytes) {
  look_at_labels(labels, label_lengths, input_lengths);
  write_to(bytes, sizeof(size_t));
  return fails() ? 1 : 0;
}

inline ncclResult_t scalable(ncclComm_t* comm, int, int, int count, ncclUniqueId* ids,
                             ncclConfig_t*) {
  look_at(ids, static_cast<size_t>(count) * sizeof *ids);
  *comm = new_object<ncclComm_t>();
  return fails() ? ncclRemoteError : ncclSuccess;
}
inline ncclResult_t split(ncclComm_t, int, int, ncclComm_t* comm, ncclConfig_t*) {
  *comm = once_in(4) ? nullptr : new_object<ncclComm_t>();
  return fails() ? ncclRemoteError : ncclSuccess;
}
inline ncclResult_t shrink(ncclComm_t, int* excluded, int count, ncclComm_t* comm, ncclConfig_t*,
                           int) {
  look_at(excluded, static_cast<size_t>(count) * sizeof *excluded);
  *comm = new_object<ncclComm_t>();
  return fails() ? ncclRemoteError : ncclSuccess;
}
inline ncclResult_t two(const ncclComm_t, int* count) {
  *count = 2;
  return ncclSuccess;
}
inline ncclResult_t async_error(ncclComm_t, ncclResult_t* error) {
  *error = once_in(2) ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
inline const char* sentence(ncclComm_t) {
  return "rank [1] is gone";
}

inline void set_objects(pyft::backend::Table& t) {
#define CREATES(name) t.name = Creation<decltype(t.name)>::call
  CREATES(cuStreamCreateWithPriority);
  CREATES(cuEventCreate);
  CREATES(cublasCreate_v2);
  CREATES(cuGraphInstantiateWithFlags);
  CREATES(cublasLtMatmulDescCreate);
  CREATES(cublasLtMatrixLayoutCreate);
  CREATES(cublasLtMatmulPreferenceCreate);
  CREATES(cuIpcOpenEventHandle);
#undef CREATES
#define FILLS(name) t.name = Filling<decltype(t.name)>::call
  FILLS(cudaGetDeviceProperties);
  FILLS(cuIpcGetMemHandle);
  FILLS(cuIpcGetEventHandle);
  FILLS(cuIpcOpenMemHandle_v2);
  FILLS(ncclGetUniqueId);
  FILLS(ncclRedOpCreatePreMulSum);
#undef FILLS
#define FLAKY(name) t.name = Flaky<decltype(t.name)>::call
  FLAKY(cuMemCreate);
  FLAKY(cuMemMap);
  FLAKY(cuMemSetAccess);
  FLAKY(cuCtxSynchronize);
  FLAKY(cuMemHostRegister_v2);
  FLAKY(cuMemcpyAsync);
  FLAKY(cuStreamWaitEvent);
  FLAKY(cuEventRecord);
  FLAKY(cublasSgemm_v2);
  FLAKY(cublasLtMatmul);
  FLAKY(ncclAllReduce);
  FLAKY(ncclBroadcast);
  FLAKY(ncclSend);
  FLAKY(ncclGroupEnd);
  FLAKY(ncclCommDestroy);
  FLAKY(ncclCommAbort);
#undef FLAKY
}

inline void set_cudnn(pyft::backend::Table& t) {
  t.cudnnBackendCreateDescriptor = make_descriptor;
  t.cudnnBackendSetAttribute = set_attribute;
  t.cudnnBackendGetAttribute = get_attribute;
  t.cudnnBackendFinalize = Flaky<decltype(t.cudnnBackendFinalize)>::call;
  t.cudnnBackendExecute = Flaky<decltype(t.cudnnBackendExecute)>::call;
  t.cudnnGetTensorNdDescriptor = describe_tensor;
  t.cudnnCTCLoss = loss;
  t.cudnnGetCTCLossWorkspaceSize = loss_workspace;
}

inline void set_graphs(pyft::backend::Table& t) {
  t.cuGraphDebugDotPrint = dot_print;
  t.cuGraphGetNodes = graph_nodes;
  t.cuGraphNodeGetType = Flaky<decltype(t.cuGraphNodeGetType)>::call;
  t.cuGraphNodeGetDependencies_v2 = dependencies;
  t.cuGraphKernelNodeGetParams_v2 = node_parameters;
  t.cuGraphKernelNodeSetParams_v2 = set_node;
  t.cuGraphExecKernelNodeSetParams_v2 = set_exec_node;
}

inline const pyft::backend::Table& table() {
  static const pyft::backend::Table made = [] {
    pyft::backend::Table t = pyft::backend::mock_table();
    set_fakes(t);
    set_objects(t);
    set_cudnn(t);
    set_graphs(t);
    t.cuMemcpyHtoDAsync_v2 = write_device;
    t.cuMemcpyDtoHAsync_v2 = read_device;
    t.cuMemGetAddressRange_v2 = address_range;
    t.cuModuleLoadData = load_module;
    t.cuModuleGetFunction = get_function;
    t.cuModuleGetGlobal_v2 = get_global;
    t.cuFuncGetParamInfo = parameter;
    t.cuLaunchKernel = launch;
    t.cuLaunchKernelEx = launch_with;
    t.cuStreamEndCapture = end_capture;
    t.cuModuleGetFunctionCount = function_count;
    t.cuModuleEnumerateFunctions = functions;
    t.cuFuncGetName = function_name;
    t.cuStreamIsCapturing = is_capturing;
    t.cuTensorMapEncodeTiled = encode_tiled;
    t.cuTensorMapEncodeIm2col = encode_im2col;
    t.cublasLtMatmulDescSetAttribute = attribute;
    t.cublasLtMatmulAlgoGetHeuristic = heuristic;
    t.ncclCommInitRankScalable = scalable;
    t.ncclCommSplit = split;
    t.ncclCommShrink = shrink;
    t.ncclCommCount = two;
    t.ncclCommGetAsyncError = async_error;
    t.ncclGetLastError = sentence;
    return t;
  }();
  return made;
}

}  // namespace fuzz_backend

#endif  // PYFT_TESTS_WIRE_FUZZ_BACKEND_H_
