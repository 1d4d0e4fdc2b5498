#include "server/handlers/blas.h"

#include <bit>
#include <cstring>
#include <unordered_map>

namespace pyft::server {
namespace {

// State each handle has on this side.
struct Applied {
  std::unordered_map<uint64_t, BlasState> by_handle;
};

bool set_stream(Session& session, cublasHandle_t blas, const BlasState& want, BlasState* have) {
  if (want.stream == have->stream) return true;
  CUstream stream;
  if (!resolve_stream(session, want.stream, &stream)) return false;
  session.backend().cublasSetStream_v2(blas, stream);
  have->stream = want.stream;
  have->workspace = have->workspace_bytes = 0;  // documented: back to the library's own
  return true;
}

void set_workspace(Session& session, cublasHandle_t blas, const BlasState& want, BlasState* have) {
  if (want.workspace == have->workspace && want.workspace_bytes == have->workspace_bytes) return;
  const backend::Table& api = session.backend();
  if (want.workspace)
    api.cublasSetWorkspace_v2(blas, reinterpret_cast<void*>(want.workspace), want.workspace_bytes);
  else if (CUstream stream; resolve_stream(session, want.stream, &stream))
    api.cublasSetStream_v2(blas, stream);
  have->workspace = want.workspace;
  have->workspace_bytes = want.workspace_bytes;
}

// The library's descriptors, rebuilt from the client's for one call.
struct LtObjects {
  explicit LtObjects(const backend::Table& api) : api(api) {}
  LtObjects(const LtObjects&) = delete;
  ~LtObjects() {
    if (desc) api.cublasLtMatmulDescDestroy(desc);
    for (cublasLtMatrixLayout_t layout : layouts)
      if (layout) api.cublasLtMatrixLayoutDestroy(layout);
    if (preference) api.cublasLtMatmulPreferenceDestroy(preference);
  }
  // False: the library has not been loaded.
  static bool can_build(const backend::Table& api) {
    return api.cublasLtMatmulDescCreate && api.cublasLtMatmulDescDestroy &&
           api.cublasLtMatmulDescSetAttribute && api.cublasLtMatrixLayoutCreate &&
           api.cublasLtMatrixLayoutDestroy && api.cublasLtMatrixLayoutSetAttribute &&
           api.cublasLtMatmulPreferenceCreate && api.cublasLtMatmulPreferenceDestroy &&
           api.cublasLtMatmulPreferenceSetAttribute;
  }
  int build(const LtProblem& problem);
  int build_preference(const LtPreference& from);

  const backend::Table& api;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layouts[4] = {};
  cublasLtMatmulPreference_t preference = nullptr;

 private:
  int build_layout(const LtLayout& from, cublasLtMatrixLayout_t* to);
};

int LtObjects::build_layout(const LtLayout& from, cublasLtMatrixLayout_t* to) {
  const auto type = static_cast<cudaDataType>(from.type);
  if (const int code = api.cublasLtMatrixLayoutCreate(to, type, from.rows, from.cols, from.ld))
    return code;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t id, const auto& value) {
    return static_cast<int>(api.cublasLtMatrixLayoutSetAttribute(*to, id, &value, sizeof value));
  };
  int code = 0;
  if (from.order) code |= set(CUBLASLT_MATRIX_LAYOUT_ORDER, from.order);
  if (from.batch_count != 1) code |= set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, from.batch_count);
  if (from.batch_stride)
    code |= set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, from.batch_stride);
  if (from.plane_offset) code |= set(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, from.plane_offset);
  if (from.batch_mode)
    code |= set(static_cast<cublasLtMatrixLayoutAttribute_t>(kLtLayoutBatchMode), from.batch_mode);
  return code;
}

int LtObjects::build(const LtProblem& problem) {
  const LtMatmulDesc& from = problem.desc;
  if (const int code =
          api.cublasLtMatmulDescCreate(&desc, static_cast<cublasComputeType_t>(from.compute_type),
                                       static_cast<cudaDataType_t>(from.scale_type)))
    return code;
  for (uint64_t left = from.given; left; left &= left - 1) {
    const auto id = static_cast<uint32_t>(std::countr_zero(left));
    const LtAttribute attribute = lt_attribute(id);
    if (!attribute.bytes) return CUBLAS_STATUS_INVALID_VALUE;
    uint64_t value = 0;  // aligned
    std::memcpy(&value, from.values + attribute.offset, attribute.bytes);
    const auto name = static_cast<cublasLtMatmulDescAttributes_t>(id);
    if (const int code = api.cublasLtMatmulDescSetAttribute(desc, name, &value, attribute.bytes))
      return code;
  }
  const LtLayout* const sources[] = {&problem.a, &problem.b, &problem.c, &problem.d};
  for (int i = 0; i < 4; ++i)
    if (const int code = build_layout(*sources[i], &layouts[i])) return code;
  return 0;
}

int LtObjects::build_preference(const LtPreference& from) {
  if (const int code = api.cublasLtMatmulPreferenceCreate(&preference)) return code;
  const auto set = [&](int id, const auto& value) {
    return static_cast<int>(api.cublasLtMatmulPreferenceSetAttribute(
        preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(id), &value, sizeof value));
  };
  const LtPreference defaults;
  int code = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, from.workspace_bytes);
  if (from.search_mode) code |= set(CUBLASLT_MATMUL_PREF_SEARCH_MODE, from.search_mode);
  if (from.reduction_mask != defaults.reduction_mask)
    code |= set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, from.reduction_mask);
  for (int i = 0; i < 4; ++i)
    if (from.alignment[i] != defaults.alignment[i])
      code |= set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, from.alignment[i]);
  if (from.max_waves_bits) code |= set(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, from.max_waves_bits);
  if (from.impl_mask != defaults.impl_mask)
    code |= set(CUBLASLT_MATMUL_PREF_IMPL_MASK, from.impl_mask);
  return code;
}

bool read_problem(Body tail, LtProblem* problem) {
  if (tail.size() < sizeof *problem) return false;
  std::memcpy(static_cast<void*>(problem), tail.data(), sizeof *problem);
  return true;
}

}  // namespace

void set_blas_modes(const backend::Table& api, cublasHandle_t blas, const BlasState& want,
                    BlasState* have) {
  if (want.math_mode != have->math_mode)
    api.cublasSetMathMode(blas, static_cast<cublasMath_t>(want.math_mode));
  if (want.pointer_mode != have->pointer_mode)
    api.cublasSetPointerMode_v2(blas, static_cast<cublasPointerMode_t>(want.pointer_mode));
  if (want.atomics_mode != have->atomics_mode && api.cublasSetAtomicsMode)
    api.cublasSetAtomicsMode(blas, static_cast<cublasAtomicsMode_t>(want.atomics_mode));
  if (want.sm_target != have->sm_target && api.cublasSetSmCountTarget)
    api.cublasSetSmCountTarget(blas, static_cast<int>(want.sm_target));
  have->math_mode = want.math_mode;
  have->pointer_mode = want.pointer_mode;
  have->atomics_mode = want.atomics_mode;
  have->sm_target = want.sm_target;
}

bool has_light_products(const backend::Table& api) {
  return LtObjects::can_build(api) && api.cublasLtMatmul;
}

int light_product(const backend::Table& api, cublasLtHandle_t blas, const cmd::cublasLtMatmul& c,
                  const LtProblem& problem, CUstream stream) {
  LtObjects objects(api);
  if (const int code = objects.build(problem)) return code;
  const uint64_t alpha[] = {c.alpha_low, c.alpha_high};
  const uint64_t beta[] = {c.beta_low, c.beta_high};
  const auto pointer = [](uint64_t address) { return reinterpret_cast<void*>(address); };
  cublasLtMatmulAlgo_t algo;
  std::memcpy(&algo, problem.algo, sizeof algo);
  return api.cublasLtMatmul(blas, objects.desc, c.device_scalars ? pointer(c.alpha_low) : alpha,
                            pointer(c.a), objects.layouts[0], pointer(c.b), objects.layouts[1],
                            c.device_scalars ? pointer(c.beta_low) : beta, pointer(c.c),
                            objects.layouts[2], pointer(c.d), objects.layouts[3],
                            c.has_algo ? &algo : nullptr, pointer(c.workspace), c.workspace_bytes,
                            stream);
}

bool apply_blas_state(Session& session, const BlasState& state, cublasHandle_t* out) {
  *out = static_cast<cublasHandle_t>(session.find(state.handle, HandleKind::kCublas));
  if (!*out) return false;
  BlasState& have = session.state<Applied>().by_handle[state.handle];
  if (!set_stream(session, *out, state, &have)) return false;
  set_workspace(session, *out, state, &have);
  set_blas_modes(session.backend(), *out, state, &have);
  return true;
}

void* scalar_address(const BlasState& state, const Scalar& scalar) {
  if (state.pointer_mode == CUBLAS_POINTER_MODE_DEVICE) return reinterpret_cast<void*>(scalar.low);
  return const_cast<Scalar*>(&scalar);
}

void* result_address(const BlasState& state, uint64_t address, uint64_t* host_result) {
  const bool device = state.pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  return device ? reinterpret_cast<void*>(address) : host_result;
}

Status do_cublasCreate_v2(Session& session, const EntryHeader& header,
                          const cmd::cublasCreate_v2& c, Body, Body) {
  const auto create = session.backend().cublasCreate_v2;
  if (!create) return missing(session, header, "cublasCreate_v2", CUBLAS_STATUS_NOT_SUPPORTED);
  cublasHandle_t blas = nullptr;
  const int code = create(&blas);
  const Handle handle{c.handle};
  if (code == 0 && (handle.kind() != HandleKind::kCublas ||
                    !session.table(HandleKind::kCublas).bind(handle, blas)))
    return bad_handle(c.handle);
  session.state<Applied>().by_handle[c.handle].atomics_mode = CUBLAS_ATOMICS_ALLOWED;
  return finish(session, header, "cublasCreate_v2", Domain::kCublas, code);
}

Status do_cublasDestroy_v2(Session& session, const EntryHeader& header,
                           const cmd::cublasDestroy_v2& c, Body, Body) {
  const auto destroy = session.backend().cublasDestroy_v2;
  if (!destroy) return missing(session, header, "cublasDestroy_v2", CUBLAS_STATUS_NOT_SUPPORTED);
  void* blas = session.table(HandleKind::kCublas).unbind(Handle{c.handle});
  if (!blas) return bad_handle(c.handle);
  session.state<Applied>().by_handle.erase(c.handle);
  return finish(session, header, "cublasDestroy_v2", Domain::kCublas,
                destroy(static_cast<cublasHandle_t>(blas)));
}

Status do_cublasLtMatmul(Session& session, const EntryHeader& header, const cmd::cublasLtMatmul& c,
                         Body tail, Body) {
  const auto blas = static_cast<cublasLtHandle_t>(session.find(c.handle, HandleKind::kCublas));
  CUstream stream;
  if (!blas) return bad_handle(c.handle);
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  if (!has_light_products(session.backend()))
    return missing(session, header, "cublasLtMatmul", CUBLAS_STATUS_NOT_SUPPORTED);
  LtProblem problem;
  if (!read_problem(tail, &problem)) return short_body("cublasLtMatmul");
  const int code = light_product(session.backend(), blas, c, problem, stream);
  return finish(session, header, "cublasLtMatmul", Domain::kCublas, code);
}

Status do_cublasLtMatmulAlgoGetHeuristic(Session& session, const EntryHeader& header,
                                         const cmd::cublasLtMatmulAlgoGetHeuristic& c, Body tail,
                                         Body) {
  const auto blas = static_cast<cublasLtHandle_t>(session.find(c.handle, HandleKind::kCublas));
  if (!blas) return bad_handle(c.handle);
  constexpr uint32_t kMost = ring::kReplyInlineBytes / sizeof(cublasLtMatmulHeuristicResult_t);
  if (c.requested < 1 || c.requested > kMost)
    return Status::broken("a heuristic for [" + std::to_string(c.requested) + "] algorithms");
  const auto ask = session.backend().cublasLtMatmulAlgoGetHeuristic;
  if (!LtObjects::can_build(session.backend()) || !ask)
    return missing(session, header, "cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
  LtProblem problem;
  if (!read_problem(tail, &problem)) return short_body("cublasLtMatmulAlgoGetHeuristic");
  LtObjects objects(session.backend());
  int code = objects.build(problem);
  if (code == 0) code = objects.build_preference(problem.preference);
  std::vector<cublasLtMatmulHeuristicResult_t> results(c.requested);
  int count = 0;
  if (code == 0)
    code = ask(blas, objects.desc, objects.layouts[0], objects.layouts[1], objects.layouts[2],
               objects.layouts[3], objects.preference, static_cast<int>(c.requested),
               results.data(), &count);
  results.resize(code == 0 && count > 0 ? static_cast<size_t>(count) : 0);
  return finish(session, header, "cublasLtMatmulAlgoGetHeuristic", Domain::kCublas, code, nullptr,
                0, std::as_bytes(std::span(results)));
}

}  // namespace pyft::server
