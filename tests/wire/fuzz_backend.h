// A backend for the dispatch fuzzer: gives out objects, touches the memory it is handed, and fails
// now and then.
#ifndef PYFT_TESTS_WIRE_FUZZ_BACKEND_H_
#define PYFT_TESTS_WIRE_FUZZ_BACKEND_H_

#include <cstring>

#include "api/mock_table.h"
#include "fuzz.h"

namespace fuzz_backend {

inline Random& luck() {
  static Random random(1);
  return random;
}

inline bool fails() {
  return luck().once_in(16);
}

template <class Object>
Object new_object() {
  static std::uintptr_t last = 0x1000;
  return reinterpret_cast<Object>(last += 16);
}

// Reads every byte, for the address sanitizer.
inline void look_at(const void* data, std::size_t bytes) {
  const auto* each = static_cast<const volatile unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) static_cast<void>(each[i]);
}

template <class Pointer>
struct Flaky;
template <class Result, class... Args>
struct Flaky<Result (*)(Args...)> {
  static Result call(Args...) { return fails() ? static_cast<Result>(1) : Result{}; }
};

// Its first argument is where the new object goes.
template <class Pointer>
struct Creation;
template <class Result, class Object, class... Args>
struct Creation<Result (*)(Object*, Args...)> {
  static Result call(Object* out, Args...) {
    if (fails()) return static_cast<Result>(1);
    *out = new_object<Object>();
    return Result{};
  }
};

inline CUresult write_device(CUdeviceptr, const void* from, size_t bytes, CUstream) {
  look_at(from, bytes);
  return CUDA_SUCCESS;
}
inline CUresult read_device(void* to, CUdeviceptr, size_t bytes, CUstream) {
  std::memset(to, 1, bytes);
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
inline CUresult parameter(CUfunction, size_t index, size_t* offset, size_t* bytes) {
  *offset = index * 8, *bytes = 8;
  return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
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

inline ncclResult_t scalable(ncclComm_t* comm, int, int, int count, ncclUniqueId* ids,
                             ncclConfig_t*) {
  look_at(ids, static_cast<size_t>(count) * sizeof *ids);
  *comm = new_object<ncclComm_t>();
  return fails() ? ncclRemoteError : ncclSuccess;
}
inline ncclResult_t split(ncclComm_t, int, int, ncclComm_t* comm, ncclConfig_t*) {
  *comm = luck().once_in(4) ? nullptr : new_object<ncclComm_t>();
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
  *error = luck().once_in(2) ? ncclRemoteError : ncclSuccess;
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
#undef CREATES
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

inline const pyft::backend::Table& table() {
  static const pyft::backend::Table made = [] {
    pyft::backend::Table t = pyft::backend::mock_table();
    set_objects(t);
    t.cuMemcpyHtoDAsync_v2 = write_device;
    t.cuMemcpyDtoHAsync_v2 = read_device;
    t.cuModuleLoadData = load_module;
    t.cuModuleGetFunction = get_function;
    t.cuModuleGetGlobal_v2 = get_global;
    t.cuFuncGetParamInfo = parameter;
    t.cuLaunchKernel = launch;
    t.cuLaunchKernelEx = launch_with;
    t.cuStreamEndCapture = end_capture;
    t.cuGraphDebugDotPrint = dot_print;
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
