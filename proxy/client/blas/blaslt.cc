// cuBLASLt's products. A matmul carries its descriptors whole, and heuristics are asked for once
// per set of bytes.
#include <cstring>
#include <map>
#include <string>

#include "api/commands.h"
#include "client/blas/blas.h"
#include "client/blas/blaslt_descriptors.h"
#include "client/process/handles.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(LtProblem::algo));

// What an algorithm may depend on: everything but where bias, scales and their like lie.
std::string heuristic_key(const BlasHandle& blas, LtProblem problem, int requested) {
  constexpr uint32_t kAddresses[] = {CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                     CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                     CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                     CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                     CUBLASLT_MATMUL_DESC_C_SCALE_POINTER,
                                     CUBLASLT_MATMUL_DESC_D_SCALE_POINTER,
                                     CUBLASLT_MATMUL_DESC_AMAX_D_POINTER,
                                     CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER,
                                     CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER,
                                     CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER};
  for (const uint32_t id : kAddresses) {
    std::byte* const at = problem.desc.values + lt_attribute(id).offset;
    uint64_t address = 0;
    std::memcpy(&address, at, sizeof address);
    address = address != 0;
    std::memcpy(at, &address, sizeof address);
  }
  std::string key(reinterpret_cast<const char*>(&problem), sizeof problem);
  return key + std::to_string(blas.device.ordinal()) + ":" + std::to_string(requested);
}

cublasStatus_t ask_heuristic(BlasHandle& blas, const LtProblem& problem, int requested,
                             std::vector<cublasLtMatmulHeuristicResult_t>* out) {
  constexpr size_t kMost = ring::kReplyInlineBytes / sizeof(cublasLtMatmulHeuristicResult_t);
  const cmd::cublasLtMatmulAlgoGetHeuristic body{
      blas.state.handle, std::min(static_cast<uint32_t>(requested), uint32_t{kMost}), 0};
  Reply reply;
  const auto id = static_cast<uint16_t>(Call::cublasLtMatmulAlgoGetHeuristic);
  const cudaError_t error = blas.device.call(id, bytes_of(body), &reply, bytes_of(problem));
  if (error != cudaSuccess) return blas_status(error);
  out->resize(reply.data.size() / sizeof(cublasLtMatmulHeuristicResult_t));
  if (!out->empty()) std::memcpy(out->data(), reply.data.data(), out->size() * sizeof out->front());
  return static_cast<cublasStatus_t>(reply.code);
}

}  // namespace

PYFT_API cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  const Entered entered(Api::cublasLtCreate);
  return cublasCreate_v2(reinterpret_cast<cublasHandle_t*>(lightHandle));
}

PYFT_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  const Entered entered(Api::cublasLtDestroy);
  return cublasDestroy_v2(reinterpret_cast<cublasHandle_t>(lightHandle));
}

PYFT_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
  const Entered entered(Api::cublasLtMatmulAlgoGetHeuristic);
  BlasHandle* blas = blas_handle(lightHandle);
  if (!blas) return CUBLAS_STATUS_NOT_INITIALIZED;
  LtProblem problem;
  const LtPreference* wanted = preference_of(preference);
  if (!gather(operationDesc, Adesc, Bdesc, Cdesc, Ddesc, &problem) || !wanted ||
      requestedAlgoCount < 1 || !heuristicResultsArray || !returnAlgoCount)
    return CUBLAS_STATUS_INVALID_VALUE;
  problem.preference = *wanted;
  struct Answer {
    cublasStatus_t status;
    std::vector<cublasLtMatmulHeuristicResult_t> results;
  };
  static std::mutex mutex;
  static std::map<std::string, Answer> cache;
  const std::string key = heuristic_key(*blas, problem, requestedAlgoCount);
  const std::lock_guard lock(mutex);
  auto found = cache.find(key);
  if (found == cache.end()) {
    Answer answer{};
    answer.status = ask_heuristic(*blas, problem, requestedAlgoCount, &answer.results);
    if (blas->device.health() != cudaSuccess) return answer.status;
    found = cache.emplace(key, std::move(answer)).first;
  }
  const auto& results = found->second.results;
  *returnAlgoCount = static_cast<int>(results.size());
  std::copy(results.begin(), results.end(), heuristicResultsArray);
  return found->second.status;
}

PYFT_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle,
                                       cublasLtMatmulDesc_t computeDesc, const void* alpha,
                                       const void* A, cublasLtMatrixLayout_t Adesc, const void* B,
                                       cublasLtMatrixLayout_t Bdesc, const void* beta,
                                       const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                                       cublasLtMatrixLayout_t Ddesc,
                                       const cublasLtMatmulAlgo_t* algo, void* workspace,
                                       size_t workspaceSizeInBytes, cudaStream_t stream) {
  const Entered entered(Api::cublasLtMatmul);
  BlasHandle* blas = blas_handle(lightHandle);
  if (!blas) return CUBLAS_STATUS_NOT_INITIALIZED;
  LtProblem problem;
  if (!gather(computeDesc, Adesc, Bdesc, Cdesc, Ddesc, &problem))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo) std::memcpy(problem.algo, algo, sizeof problem.algo);
  const int32_t mode = pointer_mode(problem.desc);
  if (mode < CUBLASLT_POINTER_MODE_HOST || mode > CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  Scalar scalars[2];
  const void* values[2] = {alpha, beta};
  for (int i = 0; i < 2; ++i) {
    if (mode == CUBLASLT_POINTER_MODE_DEVICE)
      scalars[i].low = reinterpret_cast<uint64_t>(values[i]);
    else if (values[i])
      std::memcpy(&scalars[i], values[i], scale_bytes(problem.desc));
  }
  cmd::cublasLtMatmul body{};
  body.handle = blas->state.handle;
  body.a = reinterpret_cast<uint64_t>(A);
  body.b = reinterpret_cast<uint64_t>(B);
  body.c = reinterpret_cast<uint64_t>(C);
  body.d = reinterpret_cast<uint64_t>(D);
  body.workspace = reinterpret_cast<uint64_t>(workspace);
  body.workspace_bytes = workspaceSizeInBytes;
  body.alpha_low = scalars[0].low;
  body.alpha_high = scalars[0].high;
  body.beta_low = scalars[1].low;
  body.beta_high = scalars[1].high;
  body.device_scalars = mode == CUBLASLT_POINTER_MODE_DEVICE;
  body.has_algo = algo != nullptr;
  cudaError_t error;
  Stream* found = stream_of(stream, &error);
  if (!found) return blas_status(error);
  body.stream = found->handle;
  error = found->device.send(static_cast<uint16_t>(Call::cublasLtMatmul), bytes_of(body),
                             bytes_of(problem));
  found->device.touch(*found);
  return blas_status(error);
}

PYFT_API size_t cublasLtGetVersion() {
  const Entered entered(Api::cublasLtGetVersion);
  return CUBLAS_VERSION;
}

PYFT_API size_t cublasLtGetCudartVersion() {
  const Entered entered(Api::cublasLtGetCudartVersion);
  return CUDART_VERSION;
}

PYFT_API const char* cublasLtGetStatusName(cublasStatus_t status) {
  const Entered entered(Api::cublasLtGetStatusName);
  return cublasGetStatusName(status);
}

PYFT_API const char* cublasLtGetStatusString(cublasStatus_t status) {
  const Entered entered(Api::cublasLtGetStatusString);
  return cublasGetStatusString(status);
}
