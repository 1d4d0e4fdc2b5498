// cuBLASLt. Descriptors live in the storage of the program (the vendor's opaque structs have the
// size of ours); a matmul carries them whole, and heuristics are asked for once per set of bytes.
#include <cstring>
#include <map>
#include <string>

#include "api/commands.h"
#include "client/blas.h"
#include "client/handles.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

constexpr uint32_t kDescMagic = 0x4c544d44, kLayoutMagic = 0x4c544c41,
                   kPreferenceMagic = 0x4c545052;
static_assert(sizeof(LtMatmulDesc) == sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(LtLayout) == sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(LtPreference) == sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(LtProblem::algo));

template <class Ours>
Ours* ours(void* opaque, uint32_t magic) {
  auto* object = static_cast<Ours*>(opaque);
  return object && object->magic == magic ? object : nullptr;
}

LtMatmulDesc new_desc(cublasComputeType_t compute, cudaDataType_t scale) {
  LtMatmulDesc desc;
  desc.magic = kDescMagic;
  desc.compute_type = static_cast<uint32_t>(compute);
  desc.scale_type = static_cast<uint32_t>(scale);
  const std::pair<uint32_t, int32_t> defaults[] = {
      {CUBLASLT_MATMUL_DESC_FILL_MODE, CUBLAS_FILL_MODE_FULL},
      {CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, -1},
      {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, -1}};
  for (const auto& [id, value] : defaults)
    std::memcpy(desc.values + lt_attribute(id).offset, &value, sizeof value);
  return desc;
}

LtLayout new_layout(cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld) {
  LtLayout layout;
  layout.magic = kLayoutMagic;
  layout.type = static_cast<uint32_t>(type);
  layout.rows = rows;
  layout.cols = cols;
  layout.ld = ld;
  return layout;
}

LtPreference new_preference() {
  LtPreference preference;
  preference.magic = kPreferenceMagic;
  return preference;
}

// A named place inside a descriptor that an attribute is stored in.
struct Field {
  void* at;
  size_t bytes;
};

Field layout_field(LtLayout& l, cublasLtMatrixLayoutAttribute_t attribute) {
  if (static_cast<int>(attribute) == kLtLayoutBatchMode)
    return {&l.batch_mode, sizeof l.batch_mode};
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return {&l.type, sizeof l.type};
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return {&l.order, sizeof l.order};
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return {&l.rows, sizeof l.rows};
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return {&l.cols, sizeof l.cols};
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return {&l.ld, sizeof l.ld};
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return {&l.batch_count, sizeof l.batch_count};
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return {&l.batch_stride, sizeof l.batch_stride};
    case CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET:
      return {&l.plane_offset, sizeof l.plane_offset};
    default:
      return {};
  }
}

Field preference_field(LtPreference& p, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return {&p.search_mode, sizeof p.search_mode};
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return {&p.workspace_bytes, sizeof p.workspace_bytes};
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return {&p.reduction_mask, sizeof p.reduction_mask};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
      const int index = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
      return {&p.alignment[index], sizeof p.alignment[index]};
    }
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return {&p.max_waves_bits, sizeof p.max_waves_bits};
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return {&p.impl_mask, sizeof p.impl_mask};
    default:
      return {};
  }
}

// As the library: a value has exactly its size, and there is no attribute that it does not know.
cublasStatus_t set_field(Field field, const void* value, size_t bytes) {
  if (!field.at || !value || bytes != field.bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field.at, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// With a size of 0 only the size is asked for.
cublasStatus_t get_field(Field field, void* value, size_t bytes, size_t* written) {
  if (!field.at) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0 && (!value || bytes != field.bytes)) return CUBLAS_STATUS_INVALID_VALUE;
  if (written) *written = field.bytes;
  if (bytes != 0) std::memcpy(value, field.at, field.bytes);
  return CUBLAS_STATUS_SUCCESS;
}

Field desc_field(LtMatmulDesc& desc, uint32_t id) {
  if (id == CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) return {&desc.compute_type, 4};
  if (id == CUBLASLT_MATMUL_DESC_SCALE_TYPE) return {&desc.scale_type, 4};
  const LtAttribute attribute = lt_attribute(id);
  return attribute.bytes ? Field{desc.values + attribute.offset, attribute.bytes} : Field{};
}

cublasStatus_t set_desc(LtMatmulDesc& desc, uint32_t id, const void* value, size_t bytes) {
  const cublasStatus_t status = set_field(desc_field(desc, id), value, bytes);
  if (status == CUBLAS_STATUS_SUCCESS && lt_attribute(id).bytes) desc.given |= uint64_t{1} << id;
  return status;
}

int32_t pointer_mode(const LtMatmulDesc& desc) {
  int32_t mode = 0;
  std::memcpy(&mode, desc.values + lt_attribute(CUBLASLT_MATMUL_DESC_POINTER_MODE).offset, 4);
  return mode;
}

template <class Ours, class Opaque>
cublasStatus_t create(Opaque** out, const Ours& value) {
  if (!out) return CUBLAS_STATUS_INVALID_VALUE;
  *out = reinterpret_cast<Opaque*>(new Ours(value));
  return CUBLAS_STATUS_SUCCESS;
}

template <class Ours>
cublasStatus_t destroy(void* opaque, uint32_t magic) {
  Ours* object = ours<Ours>(opaque, magic);
  if (!object) return CUBLAS_STATUS_INVALID_VALUE;
  object->magic = 0;
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

template <class Ours>
cublasStatus_t init(void* storage, size_t bytes, const Ours& value) {
  if (!storage || bytes < sizeof value) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(storage, &value, sizeof value);
  return CUBLAS_STATUS_SUCCESS;
}

bool gather(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, LtProblem* out) {
  const LtMatmulDesc* found = ours<LtMatmulDesc>(desc, kDescMagic);
  if (!found) return false;
  out->desc = *found;
  const std::pair<cublasLtMatrixLayout_t, LtLayout*> layouts[] = {
      {a, &out->a}, {b, &out->b}, {c, &out->c}, {d, &out->d}};
  for (const auto& [from, to] : layouts) {
    const LtLayout* layout = ours<LtLayout>(from, kLayoutMagic);
    if (!layout) return false;
    *to = *layout;
  }
  return true;
}

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

size_t scale_bytes(const LtMatmulDesc& desc) {
  return type_bytes(static_cast<cudaDataType>(desc.scale_type));
}

}  // namespace

PYFT_API cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  enter(Api::cublasLtCreate);
  return cublasCreate_v2(reinterpret_cast<cublasHandle_t*>(lightHandle));
}

PYFT_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  enter(Api::cublasLtDestroy);
  return cublasDestroy_v2(reinterpret_cast<cublasHandle_t>(lightHandle));
}

PYFT_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                                 cublasComputeType_t computeType,
                                                 cudaDataType_t scaleType) {
  enter(Api::cublasLtMatmulDescCreate);
  return create(matmulDesc, new_desc(computeType, scaleType));
}

PYFT_API cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmulDesc,
                                                        size_t size,
                                                        cublasComputeType_t computeType,
                                                        cudaDataType_t scaleType) {
  enter(Api::cublasLtMatmulDescInit_internal);
  return init(matmulDesc, size, new_desc(computeType, scaleType));
}

PYFT_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  enter(Api::cublasLtMatmulDescDestroy);
  return destroy<LtMatmulDesc>(matmulDesc, kDescMagic);
}

PYFT_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                                       cublasLtMatmulDescAttributes_t attr,
                                                       const void* buf, size_t sizeInBytes) {
  enter(Api::cublasLtMatmulDescSetAttribute);
  LtMatmulDesc* desc = ours<LtMatmulDesc>(matmulDesc, kDescMagic);
  if (!desc) return CUBLAS_STATUS_INVALID_VALUE;
  return set_desc(*desc, static_cast<uint32_t>(attr), buf, sizeInBytes);
}

PYFT_API cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                                       cublasLtMatmulDescAttributes_t attr,
                                                       void* buf, size_t sizeInBytes,
                                                       size_t* sizeWritten) {
  enter(Api::cublasLtMatmulDescGetAttribute);
  LtMatmulDesc* desc = ours<LtMatmulDesc>(matmulDesc, kDescMagic);
  if (!desc) return CUBLAS_STATUS_INVALID_VALUE;
  return get_field(desc_field(*desc, static_cast<uint32_t>(attr)), buf, sizeInBytes, sizeWritten);
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout,
                                                   cudaDataType type, uint64_t rows, uint64_t cols,
                                                   int64_t ld) {
  enter(Api::cublasLtMatrixLayoutCreate);
  return create(matLayout, new_layout(type, rows, cols, ld));
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matLayout,
                                                          size_t size, cudaDataType type,
                                                          uint64_t rows, uint64_t cols,
                                                          int64_t ld) {
  enter(Api::cublasLtMatrixLayoutInit_internal);
  return init(matLayout, size, new_layout(type, rows, cols, ld));
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  enter(Api::cublasLtMatrixLayoutDestroy);
  return destroy<LtLayout>(matLayout, kLayoutMagic);
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                         cublasLtMatrixLayoutAttribute_t attr,
                                                         const void* buf, size_t sizeInBytes) {
  enter(Api::cublasLtMatrixLayoutSetAttribute);
  LtLayout* layout = ours<LtLayout>(matLayout, kLayoutMagic);
  if (!layout) return CUBLAS_STATUS_INVALID_VALUE;
  return set_field(layout_field(*layout, attr), buf, sizeInBytes);
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout,
                                                         cublasLtMatrixLayoutAttribute_t attr,
                                                         void* buf, size_t sizeInBytes,
                                                         size_t* sizeWritten) {
  enter(Api::cublasLtMatrixLayoutGetAttribute);
  LtLayout* layout = ours<LtLayout>(matLayout, kLayoutMagic);
  if (!layout) return CUBLAS_STATUS_INVALID_VALUE;
  return get_field(layout_field(*layout, attr), buf, sizeInBytes, sizeWritten);
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  enter(Api::cublasLtMatmulPreferenceCreate);
  return create(pref, new_preference());
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref,
                                                              size_t size) {
  enter(Api::cublasLtMatmulPreferenceInit_internal);
  return init(pref, size, new_preference());
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  enter(Api::cublasLtMatmulPreferenceDestroy);
  return destroy<LtPreference>(pref, kPreferenceMagic);
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, const void* buf,
    size_t sizeInBytes) {
  enter(Api::cublasLtMatmulPreferenceSetAttribute);
  LtPreference* preference = ours<LtPreference>(pref, kPreferenceMagic);
  if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
  return set_field(preference_field(*preference, attr), buf, sizeInBytes);
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceGetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, void* buf,
    size_t sizeInBytes, size_t* sizeWritten) {
  enter(Api::cublasLtMatmulPreferenceGetAttribute);
  LtPreference* preference = ours<LtPreference>(pref, kPreferenceMagic);
  if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
  return get_field(preference_field(*preference, attr), buf, sizeInBytes, sizeWritten);
}

PYFT_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
  enter(Api::cublasLtMatmulAlgoGetHeuristic);
  BlasHandle* blas = blas_handle(lightHandle);
  if (!blas) return CUBLAS_STATUS_NOT_INITIALIZED;
  LtProblem problem;
  const LtPreference* wanted = ours<LtPreference>(preference, kPreferenceMagic);
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
  enter(Api::cublasLtMatmul);
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
  enter(Api::cublasLtGetVersion);
  return CUBLAS_VERSION;
}

PYFT_API size_t cublasLtGetCudartVersion() {
  enter(Api::cublasLtGetCudartVersion);
  return CUDART_VERSION;
}

PYFT_API const char* cublasLtGetStatusName(cublasStatus_t status) {
  enter(Api::cublasLtGetStatusName);
  return cublasGetStatusName(status);
}

PYFT_API const char* cublasLtGetStatusString(cublasStatus_t status) {
  enter(Api::cublasLtGetStatusString);
  return cublasGetStatusString(status);
}
