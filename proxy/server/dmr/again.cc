#include "server/dmr/again.h"

#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstring>

#include "server/handlers/blas.h"

namespace pyft::server::dmr {

namespace {

template <class T>
T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

cublasOperation_t operation(int64_t number) {
  return static_cast<cublasOperation_t>(number);
}

cudaDataType type(int64_t number) {
  return static_cast<cudaDataType>(number);
}

template <class T>
const T* factor(const Scalar& scalar) {
  return static_cast<const T*>(static_cast<const void*>(&scalar));
}

int call(const backend::Table& api, cublasHandle_t blas, const cmd::cublasSgemm_v2& c) {
  if (!api.cublasSgemm_v2) return CUBLAS_STATUS_NOT_SUPPORTED;
  return api.cublasSgemm_v2(blas, operation(c.transa), operation(c.transb), static_cast<int>(c.m),
                            static_cast<int>(c.n), static_cast<int>(c.k), factor<float>(c.alpha),
                            at<float>(c.A), static_cast<int>(c.lda), at<float>(c.B),
                            static_cast<int>(c.ldb), factor<float>(c.beta), at<float>(c.C),
                            static_cast<int>(c.ldc));
}

int call(const backend::Table& api, cublasHandle_t blas, const cmd::cublasGemmEx& c) {
  if (!api.cublasGemmEx) return CUBLAS_STATUS_NOT_SUPPORTED;
  return api.cublasGemmEx(
      blas, operation(c.transa), operation(c.transb), static_cast<int>(c.m), static_cast<int>(c.n),
      static_cast<int>(c.k), factor<void>(c.alpha), at<void>(c.A), type(c.Atype),
      static_cast<int>(c.lda), at<void>(c.B), type(c.Btype), static_cast<int>(c.ldb),
      factor<void>(c.beta), at<void>(c.C), type(c.Ctype), static_cast<int>(c.ldc),
      static_cast<cublasComputeType_t>(c.computeType), static_cast<cublasGemmAlgo_t>(c.algo));
}

int call(const backend::Table& api, cublasHandle_t blas, const cmd::cublasSgemmStridedBatched& c) {
  if (!api.cublasSgemmStridedBatched) return CUBLAS_STATUS_NOT_SUPPORTED;
  return api.cublasSgemmStridedBatched(
      blas, operation(c.transa), operation(c.transb), static_cast<int>(c.m), static_cast<int>(c.n),
      static_cast<int>(c.k), factor<float>(c.alpha), at<float>(c.A), static_cast<int>(c.lda),
      c.strideA, at<float>(c.B), static_cast<int>(c.ldb), c.strideB, factor<float>(c.beta),
      at<float>(c.C), static_cast<int>(c.ldc), c.strideC, static_cast<int>(c.batchCount));
}

int call(const backend::Table& api, cublasHandle_t blas, const cmd::cublasGemmStridedBatchedEx& c) {
  if (!api.cublasGemmStridedBatchedEx) return CUBLAS_STATUS_NOT_SUPPORTED;
  return api.cublasGemmStridedBatchedEx(
      blas, operation(c.transa), operation(c.transb), static_cast<int>(c.m), static_cast<int>(c.n),
      static_cast<int>(c.k), factor<void>(c.alpha), at<void>(c.A), type(c.Atype),
      static_cast<int>(c.lda), c.strideA, at<void>(c.B), type(c.Btype), static_cast<int>(c.ldb),
      c.strideB, factor<void>(c.beta), at<void>(c.C), type(c.Ctype), static_cast<int>(c.ldc),
      c.strideC, static_cast<int>(c.batchCount), static_cast<cublasComputeType_t>(c.computeType),
      static_cast<cublasGemmAlgo_t>(c.algo));
}

template <class Command>
uint64_t workspace_of(Body body) {
  Command c;
  return read_body(body, &c) ? c.handle.workspace_bytes : 0;
}

}  // namespace

Places places_of(const Product& product) {
  Places places;
  for (size_t i = 0; i < product.input_count; ++i) places.inputs[i] = product.inputs[i].address;
  places.output = product.output.address;
  return places;
}

uint64_t workspace_bytes(const EntryHeader& header, Body body) {
  cmd::cublasLtMatmul light;
  switch (static_cast<Call>(header.call)) {
    case Call::cublasSgemm_v2:
      return workspace_of<cmd::cublasSgemm_v2>(body);
    case Call::cublasGemmEx:
      return workspace_of<cmd::cublasGemmEx>(body);
    case Call::cublasSgemmStridedBatched:
      return workspace_of<cmd::cublasSgemmStridedBatched>(body);
    case Call::cublasGemmStridedBatchedEx:
      return workspace_of<cmd::cublasGemmStridedBatchedEx>(body);
    case Call::cublasLtMatmul:
      return read_body(body, &light) ? light.workspace_bytes : 0;
    default:
      return 0;
  }
}

bool Again::ready() {
  if (!handle_ && api_.cublasCreate_v2 && api_.cublasSetStream_v2 && api_.cublasSetWorkspace_v2 &&
      api_.cublasSetMathMode && api_.cublasSetPointerMode_v2 && api_.cublasCreate_v2(&handle_))
    handle_ = nullptr;
  return handle_;
}

int Again::execute(const EntryHeader& header, Body body, const Product& product, const Places& at,
                   CUstream stream) {
  if (!ready()) return CUBLAS_STATUS_NOT_INITIALIZED;
  switch (static_cast<Call>(header.call)) {
    case Call::cublasSgemm_v2:
      return gemm<cmd::cublasSgemm_v2>(body, at, stream);
    case Call::cublasGemmEx:
      return gemm<cmd::cublasGemmEx>(body, at, stream);
    case Call::cublasSgemmStridedBatched:
      return gemm<cmd::cublasSgemmStridedBatched>(body, at, stream);
    case Call::cublasGemmStridedBatchedEx:
      return gemm<cmd::cublasGemmStridedBatchedEx>(body, at, stream);
    case Call::cublasLtMatmul:
      return light(body, product, at, stream);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

// The stream comes first: it takes the workspace away.
template <class Command>
int Again::gemm(Body body, const Places& at, CUstream stream) {
  Command c;
  if (!read_body(body, &c)) return CUBLAS_STATUS_INVALID_VALUE;
  if (const int code = api_.cublasSetStream_v2(handle_, stream)) return code;
  if (at.workspace && c.handle.workspace_bytes) {
    auto* const workspace = reinterpret_cast<void*>(at.workspace);
    if (const int code = api_.cublasSetWorkspace_v2(handle_, workspace, c.handle.workspace_bytes))
      return code;
  }
  set_blas_modes(api_, handle_, c.handle, &modes_);
  c.A = at.inputs[0];
  c.B = at.inputs[1];
  c.C = at.output;
  return call(api_, handle_, c);
}

int Again::light(Body body, const Product& product, const Places& at, CUstream stream) {
  cmd::cublasLtMatmul c;
  LtProblem problem;
  if (body.size() < sizeof c + sizeof problem || !read_body(body, &c) || !has_light_products(api_))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memcpy(static_cast<void*>(&problem), body.data() + sizeof c, sizeof problem);
  c.a = at.inputs[0];
  c.b = at.inputs[1];
  const bool reads_c = c.beta_low || c.beta_high;
  c.c = reads_c ? at.inputs[2] : at.output;
  c.d = at.output;
  if (c.workspace) c.workspace = at.workspace;
  if (!c.workspace) c.workspace_bytes = 0;
  const size_t bias = reads_c ? 3 : 2;
  if (product.input_count > bias) {
    const LtAttribute place = lt_attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
    std::memcpy(problem.desc.values + place.offset, &at.inputs[bias], place.bytes);
  }
  return light_product(api_, reinterpret_cast<cublasLtHandle_t>(handle_), c, problem, stream);
}

}  // namespace pyft::server::dmr
