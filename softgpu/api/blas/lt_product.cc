#include "api/blas/lt_product.h"

// after it: cuBLASLt's header wants the types above
#include <cublasLt.h>

#include <memory>
#include <utility>

#include "api/support.h"

namespace softgpu::api {
namespace {

cudaDataType_t data_type(uint32_t number) {
  return static_cast<cudaDataType_t>(number);
}

Matrix matrix(const void* address, const Layout& l) {
  return {number(address), data_type(l.type), l.ld, l.stride};
}

// A row-major matrix is its transpose, column-major.
bool row_major(const Layout& l) {
  return l.order == CUBLASLT_ORDER_ROW;
}

bool known_order(const Layout& l) {
  return row_major(l) || l.order == CUBLASLT_ORDER_COL;
}

bool is_complex(const Layout& l) {
  return l.type == CUDA_C_32F || l.type == CUDA_C_64F;
}

// The operation on a matrix that is given as its transpose; false if BLAS has none: conjugation
// alone.
bool transposed(cublasOperation_t* op, const Layout& l) {
  if (*op == CUBLAS_OP_C && is_complex(l)) return false;
  *op = *op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
  return true;
}

bool shapes_fit(const MatmulDesc& desc, const Layouts& l) {
  const bool plain_a = desc.transa == CUBLAS_OP_N, plain_b = desc.transb == CUBLAS_OP_N;
  const uint64_t k = plain_a ? l.a.cols : l.a.rows;
  return (plain_a ? l.a.rows : l.a.cols) == l.d.rows &&
         (plain_b ? l.b.cols : l.b.rows) == l.d.cols && (plain_b ? l.b.rows : l.b.cols) == k;
}

bool epilogue_fits(const MatmulDesc& desc, const Layouts& l) {
  if (desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  if (desc.epilogue & ~kEpilogues) return false;
  // Epilogues go along the columns of 32-bit copies; a bias of wider types is added afterwards.
  if (row_major(l.d) || l.d.type == CUDA_R_32I) return false;
  const bool wide = element_bytes(data_type(l.d.type)) > 4;
  return !wide || (desc.epilogue & ~kBias) <= uint32_t{CUBLASLT_EPILOGUE_DEFAULT};
}

// The operations as BLAS has to apply them, of a product whose result is column-major.
bool set_operations(const MatmulDesc& desc, const Layouts& l, Gemm* g) {
  g->transa = static_cast<cublasOperation_t>(desc.transa);
  g->transb = static_cast<cublasOperation_t>(desc.transb);
  if (!known(g->transa) || !known(g->transb)) return false;
  if (row_major(l.a) != row_major(l.d) && !transposed(&g->transa, l.a)) return false;
  return row_major(l.b) == row_major(l.d) || transposed(&g->transb, l.b);
}

// One factor on host or device, or vectors of them on the device.
cublasStatus_t set_factors(const MatmulDesc& desc, const Operands& at, bool rows, Gemm* g) {
  if (!at.alpha) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaDataType_t type = g->alpha.type;
  if (desc.pointer_mode <= CUBLASLT_POINTER_MODE_DEVICE) {
    const bool on_device = desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
    g->alpha = make_factor(at.alpha, type, on_device);
    if (at.beta) g->beta = make_factor(at.beta, type, on_device);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (!rows || type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  g->alphas = number(at.alpha);
  if (desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE_VECTOR) g->betas = number(at.beta);
  if (desc.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST && at.beta) {
    g->beta = make_factor(at.beta, type, false);
  }
  return check_gemm(*g);
}

}  // namespace

cublasStatus_t make_product(const MatmulDesc& desc, const Layouts& l, Gemm* g) {
  if (!known_order(l.a) || !known_order(l.b) || !known_order(l.d) || l.c.order != l.d.order ||
      desc.transc != CUBLAS_OP_N || !epilogue_fits(desc, l) || !set_operations(desc, l, g)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (!shapes_fit(desc, l)) return CUBLAS_STATUS_INVALID_VALUE;
  g->m = static_cast<int64_t>(l.d.rows);
  g->n = static_cast<int64_t>(l.d.cols);
  g->k = static_cast<int64_t>(desc.transa == CUBLAS_OP_N ? l.a.cols : l.a.rows);
  g->batch = l.d.batch;
  g->a = matrix(nullptr, l.a);
  g->b = matrix(nullptr, l.b);
  g->c = matrix(nullptr, l.c);
  g->d = matrix(nullptr, l.d);
  g->alpha.type = g->beta.type = data_type(static_cast<uint32_t>(desc.scale_type));
  if (row_major(l.d)) {
    // D^T = op(B)^T op(A)^T
    std::swap(g->m, g->n);
    std::swap(g->a, g->b);
    std::swap(g->transa, g->transb);
  }
  return check_gemm(*g);
}

cublasStatus_t matmul(const MatmulDesc& desc, const Layouts& l, const Operands& at, int device,
                      cudaStream_t stream) {
  Gemm g;
  if (const cublasStatus_t bad = make_product(desc, l, &g); bad != CUBLAS_STATUS_SUCCESS)
    return bad;
  if (!at.d) return CUBLAS_STATUS_INVALID_VALUE;
  const bool swapped = row_major(l.d);
  if (const cublasStatus_t bad = set_factors(desc, at, !swapped, &g); bad != CUBLAS_STATUS_SUCCESS)
    return bad;
  g.a.address = number(swapped ? at.b : at.a);
  g.b.address = number(swapped ? at.a : at.b);
  g.c.address = number(at.c);
  g.d.address = number(at.d);
  Epilogue epilogue;
  BlasHandle handle;
  handle.device = device;
  const auto d_type = data_type(l.d.type);
  if (element_bytes(d_type) > 4 && (desc.epilogue & kBias)) {
    return enqueue_blas(handle, stream, [g, bias = desc.bias, stride = desc.bias_stride]() {
      const Fault bad = run_gemm(g, {});
      return bad ? bad : add_wide_bias(g, bias, stride);
    });
  }
  if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    const auto own_type = d_type == CUDA_R_8I ? g.alpha.type : d_type;
    const auto bias_type =
        desc.bias_type < 0 ? own_type : data_type(static_cast<uint32_t>(desc.bias_type));
    auto post = std::make_shared<Post>(Post{desc, g.m, g.n, g.batch, bias_type, d_type});
    epilogue.none = false;
    epilogue.apply = [post](float* p, int64_t ld, int64_t i) { post->apply(p, ld, i); };
    epilogue.reachable = [post] { return post->reachable(); };
  }
  if (desc.epilogue & kInputGradients) {
    return enqueue_blas(handle, stream, [g, epilogue, desc] {
      const Fault bad = store_input_gradients(g, desc);
      return bad ? bad : run_gemm(g, epilogue);
    });
  }
  return enqueue_blas(handle, stream, [g, epilogue] { return run_gemm(g, epilogue); });
}

}  // namespace softgpu::api
