#include "server/dmr/products.h"

#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstring>
#include <optional>
#include <string_view>

namespace pyft::server::dmr {

namespace {

// Bytes of an element; 0: products of such are not compared.
uint64_t element_bytes(int64_t type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_64F:
      return 8;
    default:
      return 0;
  }
}

struct Shape {
  int64_t rows, columns, ld, stride;
};

// False if no memory has that form.
bool set(Range* range, uint64_t address, const Shape& s, int64_t batch, uint64_t element) {
  if (!element || s.rows <= 0 || s.columns <= 0 || s.ld < s.rows || batch <= 0 || s.stride < 0 ||
      s.ld > (int64_t{1} << 40) || s.stride > (int64_t{1} << 40))
    return false;
  *range = {address,
            static_cast<uint64_t>(s.rows) * element,
            static_cast<uint64_t>(s.columns),
            static_cast<uint64_t>(s.ld) * element,
            static_cast<uint64_t>(batch),
            static_cast<uint64_t>(s.stride) * element};
  return range->extent() != 0;
}

template <class Command>
constexpr bool kBatched = requires(const Command& c) { c.batchCount; };
template <class Command>
constexpr bool kTyped = requires(const Command& c) { c.Atype; };

template <class Command>
Reading read_gemm(const char* name, Body body, Product* out) {
  Command c;
  if (!read_body(body, &c)) return Reading::kOther;  // the handler says so
  if (c.handle.pointer_mode != CUBLAS_POINTER_MODE_HOST) return Reading::kOpaque;
  out->name = name;
  out->stream = c.handle.stream;
  out->m = c.m, out->n = c.n, out->k = c.k;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  uint64_t a = 4, b = 4, d = 4;
  if constexpr (kBatched<Command>) {
    out->batch = c.batchCount;
    stride_a = c.strideA, stride_b = c.strideB, stride_c = c.strideC;
  }
  if constexpr (kTyped<Command>)
    a = element_bytes(c.Atype), b = element_bytes(c.Btype), d = element_bytes(c.Ctype);
  const bool plain_a = c.transa == CUBLAS_OP_N, plain_b = c.transb == CUBLAS_OP_N;
  const Shape sa{plain_a ? c.m : c.k, plain_a ? c.k : c.m, c.lda, stride_a};
  const Shape sb{plain_b ? c.k : c.n, plain_b ? c.n : c.k, c.ldb, stride_b};
  Range in_a, in_b;
  if (!set(&in_a, c.A, sa, out->batch, a) || !set(&in_b, c.B, sb, out->batch, b) ||
      !set(&out->output, c.C, {c.m, c.n, c.ldc, stride_c}, out->batch, d))
    return Reading::kOpaque;
  out->reads(in_a);
  out->reads(in_b);
  if (c.beta.low || c.beta.high) out->reads(out->output);
  // Another handle and workspace, as a backward pass has them, change nothing; its size may.
  c.A = c.B = c.C = c.handle.handle = c.handle.stream = c.handle.workspace = 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(&c);
  out->arguments.assign(bytes, bytes + sizeof c);
  return Reading::kProduct;
}

// ---- the light library: attributes that are understood ----

template <class T>
std::optional<T> attribute(const LtMatmulDesc& desc, uint32_t id) {
  if (!(desc.given >> id & 1)) return std::nullopt;
  T value{};
  std::memcpy(&value, desc.values + lt_attribute(id).offset, sizeof value);
  return value;
}

bool understood(const LtMatmulDesc& desc) {
  constexpr uint64_t kKnown = uint64_t{1} << CUBLASLT_MATMUL_DESC_TRANSA |
                              uint64_t{1} << CUBLASLT_MATMUL_DESC_TRANSB |
                              uint64_t{1} << CUBLASLT_MATMUL_DESC_EPILOGUE |
                              uint64_t{1} << CUBLASLT_MATMUL_DESC_BIAS_POINTER |
                              uint64_t{1} << CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE |
                              uint64_t{1} << CUBLASLT_MATMUL_DESC_POINTER_MODE |
                              uint64_t{1} << CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET |
                              uint64_t{1} << CUBLASLT_MATMUL_DESC_FAST_ACCUM;
  if (desc.given & ~kKnown) return false;
  const auto mode = attribute<int32_t>(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE);
  if (mode.value_or(CUBLASLT_POINTER_MODE_HOST) != CUBLASLT_POINTER_MODE_HOST) return false;
  switch (attribute<uint32_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE)
              .value_or(CUBLASLT_EPILOGUE_DEFAULT)) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      return true;
    default:
      return false;
  }
}

bool set(Range* range, uint64_t address, const LtLayout& l) {
  if (l.plane_offset || l.batch_mode || l.rows >> 40 || l.cols >> 40) return false;
  if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW) return false;
  const bool by_column = l.order == CUBLASLT_ORDER_COL;
  const auto rows = static_cast<int64_t>(l.rows), columns = static_cast<int64_t>(l.cols);
  return set(range, address,
             {by_column ? rows : columns, by_column ? columns : rows, l.ld, l.batch_stride},
             l.batch_count, element_bytes(l.type));
}

bool reads_bias(const LtProblem& problem, Product* out) {
  const LtMatmulDesc& desc = problem.desc;
  const auto epilogue = attribute<uint32_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE);
  if (!(epilogue.value_or(CUBLASLT_EPILOGUE_DEFAULT) & CUBLASLT_EPILOGUE_BIAS)) return true;
  const auto address = attribute<uint64_t>(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  const auto type = attribute<int32_t>(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  const auto rows = static_cast<int64_t>(problem.d.rows);
  Range bias;
  if (!address || !set(&bias, *address, {rows, 1, rows, 0}, 1,
                       element_bytes(type.value_or(static_cast<int32_t>(problem.d.type)))))
    return false;
  out->reads(bias);
  return true;
}

Reading read_light(Body body, Product* out) {
  cmd::cublasLtMatmul c;
  LtProblem problem;
  if (body.size() < sizeof c + sizeof problem || !read_body(body, &c)) return Reading::kOther;
  std::memcpy(static_cast<void*>(&problem), body.data() + sizeof c, sizeof problem);
  if (c.device_scalars || !understood(problem.desc)) return Reading::kOpaque;
  out->name = "cublasLtMatmul";
  out->stream = c.stream;
  const auto transposed = attribute<int32_t>(problem.desc, CUBLASLT_MATMUL_DESC_TRANSA);
  const bool plain = transposed.value_or(CUBLAS_OP_N) == CUBLAS_OP_N;
  Range a, b, in_c;
  if (!set(&a, c.a, problem.a) || !set(&b, c.b, problem.b) || !set(&out->output, c.d, problem.d))
    return Reading::kOpaque;
  out->m = static_cast<int64_t>(problem.d.rows), out->n = static_cast<int64_t>(problem.d.cols);
  out->k = static_cast<int64_t>(plain ? problem.a.cols : problem.a.rows);
  out->batch = problem.d.batch_count;
  out->reads(a);
  out->reads(b);
  if (c.beta_low || c.beta_high) {
    if (!set(&in_c, c.c, problem.c)) return Reading::kOpaque;
    out->reads(in_c);
  }
  if (!reads_bias(problem, out)) return Reading::kOpaque;
  const LtAttribute bias = lt_attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  std::memset(problem.desc.values + bias.offset, 0, bias.bytes);
  if (!c.has_algo) std::memset(problem.algo, 0, sizeof problem.algo);
  problem.preference = {};
  c.handle = c.stream = c.a = c.b = c.c = c.d = c.workspace = 0;
  out->arguments.resize(sizeof c + sizeof problem);
  std::memcpy(out->arguments.data(), &c, sizeof c);
  std::memcpy(out->arguments.data() + sizeof c, &problem, sizeof problem);
  return Reading::kProduct;
}

}  // namespace

uint64_t Range::extent() const {
  constexpr unsigned __int128 kMost = uint64_t{1} << 47;
  const unsigned __int128 all = static_cast<unsigned __int128>(slices - 1) * stride +
                                static_cast<unsigned __int128>(columns - 1) * pitch + bytes;
  return all < kMost ? static_cast<uint64_t>(all) : 0;
}

Reading read_product(const EntryHeader& header, Body body, Product* product) {
  switch (static_cast<Call>(header.call)) {
    case Call::cublasSgemm_v2:
      return read_gemm<cmd::cublasSgemm_v2>("cublasSgemm_v2", body, product);
    case Call::cublasGemmEx:
      return read_gemm<cmd::cublasGemmEx>("cublasGemmEx", body, product);
    case Call::cublasSgemmStridedBatched:
      return read_gemm<cmd::cublasSgemmStridedBatched>("cublasSgemmStridedBatched", body, product);
    case Call::cublasGemmStridedBatchedEx:
      return read_gemm<cmd::cublasGemmStridedBatchedEx>("cublasGemmStridedBatchedEx", body,
                                                        product);
    case Call::cublasLtMatmul:
      return read_light(body, product);
    default:
      break;
  }
  const char* const name = call_name(header.call);
  const std::string_view is = name ? name : "";
  const bool product_too =
      is.starts_with("cublas") && (is.find("gemm") != is.npos || is.find("Gemm") != is.npos);
  return product_too ? Reading::kOpaque : Reading::kOther;
}

}  // namespace pyft::server::dmr
