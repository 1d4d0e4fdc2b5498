// The vendor's opaque structs have the size of ours.
#include "client/blas/blaslt_descriptors.h"

#include <cstring>
#include <utility>

#include "client/process/handles.h"

namespace pyft::client {
namespace {

constexpr uint32_t kDescMagic = 0x4c544d44, kLayoutMagic = 0x4c544c41,
                   kPreferenceMagic = 0x4c545052;
static_assert(sizeof(LtMatmulDesc) == sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(LtLayout) == sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(LtPreference) == sizeof(cublasLtMatmulPreferenceOpaque_t));

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

}  // namespace

int32_t pointer_mode(const LtMatmulDesc& desc) {
  int32_t mode = 0;
  std::memcpy(&mode, desc.values + lt_attribute(CUBLASLT_MATMUL_DESC_POINTER_MODE).offset, 4);
  return mode;
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

const LtPreference* preference_of(cublasLtMatmulPreference_t preference) {
  return ours<LtPreference>(preference, kPreferenceMagic);
}

size_t scale_bytes(const LtMatmulDesc& desc) {
  return type_bytes(static_cast<cudaDataType>(desc.scale_type));
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                                 cublasComputeType_t computeType,
                                                 cudaDataType_t scaleType) {
  const Entered entered(Api::cublasLtMatmulDescCreate);
  return create(matmulDesc, new_desc(computeType, scaleType));
}

PYFT_API cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmulDesc,
                                                        size_t size,
                                                        cublasComputeType_t computeType,
                                                        cudaDataType_t scaleType) {
  const Entered entered(Api::cublasLtMatmulDescInit_internal);
  return init(matmulDesc, size, new_desc(computeType, scaleType));
}

PYFT_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  const Entered entered(Api::cublasLtMatmulDescDestroy);
  return destroy<LtMatmulDesc>(matmulDesc, kDescMagic);
}

PYFT_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                                       cublasLtMatmulDescAttributes_t attr,
                                                       const void* buf, size_t sizeInBytes) {
  const Entered entered(Api::cublasLtMatmulDescSetAttribute);
  LtMatmulDesc* desc = ours<LtMatmulDesc>(matmulDesc, kDescMagic);
  if (!desc) return CUBLAS_STATUS_INVALID_VALUE;
  return set_desc(*desc, static_cast<uint32_t>(attr), buf, sizeInBytes);
}

PYFT_API cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                                       cublasLtMatmulDescAttributes_t attr,
                                                       void* buf, size_t sizeInBytes,
                                                       size_t* sizeWritten) {
  const Entered entered(Api::cublasLtMatmulDescGetAttribute);
  LtMatmulDesc* desc = ours<LtMatmulDesc>(matmulDesc, kDescMagic);
  if (!desc) return CUBLAS_STATUS_INVALID_VALUE;
  return get_field(desc_field(*desc, static_cast<uint32_t>(attr)), buf, sizeInBytes, sizeWritten);
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout,
                                                   cudaDataType type, uint64_t rows, uint64_t cols,
                                                   int64_t ld) {
  const Entered entered(Api::cublasLtMatrixLayoutCreate);
  return create(matLayout, new_layout(type, rows, cols, ld));
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matLayout,
                                                          size_t size, cudaDataType type,
                                                          uint64_t rows, uint64_t cols,
                                                          int64_t ld) {
  const Entered entered(Api::cublasLtMatrixLayoutInit_internal);
  return init(matLayout, size, new_layout(type, rows, cols, ld));
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  const Entered entered(Api::cublasLtMatrixLayoutDestroy);
  return destroy<LtLayout>(matLayout, kLayoutMagic);
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                         cublasLtMatrixLayoutAttribute_t attr,
                                                         const void* buf, size_t sizeInBytes) {
  const Entered entered(Api::cublasLtMatrixLayoutSetAttribute);
  LtLayout* layout = ours<LtLayout>(matLayout, kLayoutMagic);
  if (!layout) return CUBLAS_STATUS_INVALID_VALUE;
  return set_field(layout_field(*layout, attr), buf, sizeInBytes);
}

PYFT_API cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout,
                                                         cublasLtMatrixLayoutAttribute_t attr,
                                                         void* buf, size_t sizeInBytes,
                                                         size_t* sizeWritten) {
  const Entered entered(Api::cublasLtMatrixLayoutGetAttribute);
  LtLayout* layout = ours<LtLayout>(matLayout, kLayoutMagic);
  if (!layout) return CUBLAS_STATUS_INVALID_VALUE;
  return get_field(layout_field(*layout, attr), buf, sizeInBytes, sizeWritten);
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  const Entered entered(Api::cublasLtMatmulPreferenceCreate);
  return create(pref, new_preference());
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref,
                                                              size_t size) {
  const Entered entered(Api::cublasLtMatmulPreferenceInit_internal);
  return init(pref, size, new_preference());
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  const Entered entered(Api::cublasLtMatmulPreferenceDestroy);
  return destroy<LtPreference>(pref, kPreferenceMagic);
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, const void* buf,
    size_t sizeInBytes) {
  const Entered entered(Api::cublasLtMatmulPreferenceSetAttribute);
  LtPreference* preference = ours<LtPreference>(pref, kPreferenceMagic);
  if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
  return set_field(preference_field(*preference, attr), buf, sizeInBytes);
}

PYFT_API cublasStatus_t cublasLtMatmulPreferenceGetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, void* buf,
    size_t sizeInBytes, size_t* sizeWritten) {
  const Entered entered(Api::cublasLtMatmulPreferenceGetAttribute);
  LtPreference* preference = ours<LtPreference>(pref, kPreferenceMagic);
  if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
  return get_field(preference_field(*preference, attr), buf, sizeInBytes, sizeWritten);
}
