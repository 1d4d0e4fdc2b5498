// cuBLASLt: descriptors that live in the caller's opaque structs, and one algorithm for everything.
#include "api/blas/cublas_types.h"
// after it: cuBLASLt's header wants the types above
#include <cublasLt.h>

#include <cstddef>
#include <cstring>

#include "api/blas/blas.h"
#include "api/blas/lt_product.h"
#include "api/support.h"

namespace softgpu::api {

cublasStatus_t create_blas(void** out);
cublasStatus_t destroy_blas(const void* handle);

namespace {

// The content of a cublasLtMatmulPreference_t.
struct Preference {
  uint64_t workspace_bytes;
};
static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

template <class Content, class Opaque>
Content content(const Opaque* opaque) {
  Content c;
  std::memcpy(&c, opaque, sizeof c);
  return c;
}

template <class Content, class Opaque>
cublasStatus_t initialise(Opaque* opaque, size_t size, const Content& c) {
  if (!opaque) return CUBLAS_STATUS_INVALID_VALUE;
  if (size < sizeof(Content)) return CUBLAS_STATUS_ALLOC_FAILED;
  std::memset(static_cast<void*>(opaque), 0, size);
  std::memcpy(static_cast<void*>(opaque), &c, sizeof c);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Content, class Opaque>
cublasStatus_t create(Opaque** out, const Content& c) {
  if (!out) return CUBLAS_STATUS_INVALID_VALUE;
  auto made = std::make_unique<Opaque>();
  initialise(made.get(), sizeof(Opaque), c);
  *out = made.release();  // the caller's until the matching destroy call
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque>
cublasStatus_t destroy(Opaque* opaque) {
  std::unique_ptr<Opaque> owned(opaque);
  return CUBLAS_STATUS_SUCCESS;
}

MatmulDesc new_desc(cublasComputeType_t compute, cudaDataType_t scale) {
  MatmulDesc d{};
  d.compute_type = compute;
  d.scale_type = scale;
  d.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  d.bias_type = -1;
  return d;
}

Layout new_layout(cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld) {
  Layout l{};
  l.type = type;
  l.order = CUBLASLT_ORDER_COL;
  l.rows = rows;
  l.cols = cols;
  l.ld = ld;
  l.batch = 1;
  return l;
}

struct Attribute {
  int id;
  size_t offset, size;
};

#define SOFTGPU_FIELD(id, type, field)             \
  Attribute {                                      \
    id, offsetof(type, field), sizeof(type::field) \
  }
constexpr Attribute kDescAttributes[] = {
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, MatmulDesc, compute_type),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, MatmulDesc, scale_type),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, MatmulDesc, pointer_mode),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_TRANSA, MatmulDesc, transa),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_TRANSB, MatmulDesc, transb),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_TRANSC, MatmulDesc, transc),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, MatmulDesc, epilogue),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, MatmulDesc, bias),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, MatmulDesc, bias_stride),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, MatmulDesc, bias_type),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, MatmulDesc, aux),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, MatmulDesc, aux_ld),
    SOFTGPU_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, MatmulDesc, aux_stride),
};
constexpr Attribute kLayoutAttributes[] = {
    SOFTGPU_FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, Layout, type),
    SOFTGPU_FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, Layout, order),
    SOFTGPU_FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, Layout, rows),
    SOFTGPU_FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, Layout, cols),
    SOFTGPU_FIELD(CUBLASLT_MATRIX_LAYOUT_LD, Layout, ld),
    SOFTGPU_FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, Layout, batch),
    SOFTGPU_FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, Layout, stride),
};
constexpr Attribute kPreferenceAttributes[] = {
    SOFTGPU_FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Preference, workspace_bytes),
};
#undef SOFTGPU_FIELD

// Attributes that change no number (carve-outs, alignments, search modes) are taken and dropped.
constexpr int kHarmlessDescAttributes[] = {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                                           CUBLASLT_MATMUL_DESC_FAST_ACCUM};

template <size_t n>
cublasStatus_t set(void* opaque, const Attribute (&table)[n], int id, const void* from,
                   size_t bytes) {
  if (!opaque || !from) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Attribute& a : table) {
    if (a.id != id) continue;
    if (bytes < a.size) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(static_cast<uint8_t*>(opaque) + a.offset, from, a.size);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

template <size_t n>
cublasStatus_t get(const void* opaque, const Attribute (&table)[n], int id, void* to, size_t bytes,
                   size_t* written) {
  if (!opaque) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Attribute& a : table) {
    if (a.id != id) continue;
    if (written) *written = a.size;
    if (bytes == 0 && written) return CUBLAS_STATUS_SUCCESS;
    if (!to || bytes < a.size) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(to, static_cast<const uint8_t*>(opaque) + a.offset, a.size);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;

SOFTGPU_API size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}
SOFTGPU_API size_t cublasLtGetCudartVersion() {
  return CUDART_VERSION;
}

SOFTGPU_API cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) {
  return api::create_blas(reinterpret_cast<void**>(out));
}

SOFTGPU_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return api::destroy_blas(handle);
}

SOFTGPU_API cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                                           cublasComputeType_t compute,
                                                           cudaDataType_t scale) {
  return api::initialise(desc, size, api::new_desc(compute, scale));
}

SOFTGPU_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out,
                                                    cublasComputeType_t compute,
                                                    cudaDataType_t scale) {
  return api::create(out, api::new_desc(compute, scale));
}

SOFTGPU_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return api::destroy(desc);
}

SOFTGPU_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                          cublasLtMatmulDescAttributes_t id,
                                                          const void* from, size_t bytes) {
  for (const int harmless : api::kHarmlessDescAttributes) {
    if (id == harmless) return CUBLAS_STATUS_SUCCESS;
  }
  return api::set(desc, api::kDescAttributes, id, from, bytes);
}

SOFTGPU_API cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc,
                                                          cublasLtMatmulDescAttributes_t id,
                                                          void* to, size_t bytes, size_t* written) {
  return api::get(desc, api::kDescAttributes, id, to, bytes, written);
}

SOFTGPU_API cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout,
                                                             size_t size, cudaDataType type,
                                                             uint64_t rows, uint64_t cols,
                                                             int64_t ld) {
  return api::initialise(layout, size, api::new_layout(type, rows, cols, ld));
}

SOFTGPU_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out,
                                                      cudaDataType type, uint64_t rows,
                                                      uint64_t cols, int64_t ld) {
  return api::create(out, api::new_layout(type, rows, cols, ld));
}

SOFTGPU_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return api::destroy(layout);
}

SOFTGPU_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                            cublasLtMatrixLayoutAttribute_t id,
                                                            const void* from, size_t bytes) {
  return api::set(layout, api::kLayoutAttributes, id, from, bytes);
}

SOFTGPU_API cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                            cublasLtMatrixLayoutAttribute_t id,
                                                            void* to, size_t bytes,
                                                            size_t* written) {
  return api::get(layout, api::kLayoutAttributes, id, to, bytes, written);
}

SOFTGPU_API cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref,
                                                                 size_t size) {
  return api::initialise(pref, size, api::Preference{});
}

SOFTGPU_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  return api::create(out, api::Preference{});
}

SOFTGPU_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  return api::destroy(pref);
}

// What a preference asks for limits the choice of algorithms, and there is only one.
SOFTGPU_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t id, const void* from,
    size_t bytes) {
  if (!pref || !from) return CUBLAS_STATUS_INVALID_VALUE;
  api::set(pref, api::kPreferenceAttributes, id, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

SOFTGPU_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t, int wanted, cublasLtMatmulHeuristicResult_t* results,
    int* returned) {
  if (!api::blas_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!desc || !a || !b || !c || !d || !results || !returned || wanted < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *returned = 0;
  softgpu::api::Gemm g;
  const cublasStatus_t status =
      api::make_product(api::content<api::MatmulDesc>(desc),
                        {api::content<api::Layout>(a), api::content<api::Layout>(b),
                         api::content<api::Layout>(c), api::content<api::Layout>(d)},
                        &g);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  results[0] = cublasLtMatmulHeuristicResult_t{};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

SOFTGPU_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                          const void* alpha, const void* a,
                                          cublasLtMatrixLayout_t la, const void* b,
                                          cublasLtMatrixLayout_t lb, const void* beta,
                                          const void* c, cublasLtMatrixLayout_t lc, void* d,
                                          cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t*,
                                          void*, size_t, cudaStream_t stream) {
  const api::BlasHandle* h = api::blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!desc || !la || !lb || !lc || !ld) return CUBLAS_STATUS_INVALID_VALUE;
  return api::matmul(api::content<api::MatmulDesc>(desc),
                     {api::content<api::Layout>(la), api::content<api::Layout>(lb),
                      api::content<api::Layout>(lc), api::content<api::Layout>(ld)},
                     {alpha, a, b, beta, c, d}, h->device, stream);
}

SOFTGPU_API cublasStatus_t cublasLtMatmulPreferenceGetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t id, void* to,
    size_t bytes, size_t* written) {
  return api::get(pref, api::kPreferenceAttributes, id, to, bytes, written);
}

SOFTGPU_API const char* cublasLtGetStatusName(cublasStatus_t status) {
  return cublasGetStatusName(status);
}

SOFTGPU_API const char* cublasLtGetStatusString(cublasStatus_t status) {
  return cublasGetStatusString(status);
}
