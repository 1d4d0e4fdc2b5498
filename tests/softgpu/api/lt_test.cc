// cublasLtMatmul: epilogues, orders, vectors of factors, types.
#include "api/blas/cublas_types.h"
// after it: cuBLASLt's header wants the types above
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "check.h"
#include "device_array.h"

namespace {

using Values = std::vector<float>;

cublasLtHandle_t handle() {
  static cublasLtHandle_t h = [] {
    cublasLtHandle_t made = nullptr;
    CHECK_EQ(cublasLtCreate(&made), CUBLAS_STATUS_SUCCESS);
    return made;
  }();
  return h;
}

template <class T>
std::vector<T> numbers(int count, int seed) {
  std::vector<T> v;
  for (int i = 0; i < count; ++i) v.push_back(static_cast<T>((i * 7 + seed * 13) % 11 - 5));
  return v;
}

class Layout {
 public:
  Layout(cudaDataType type, int rows, int columns, int64_t ld, int batch = 1, int64_t stride = 0,
         int order = CUBLASLT_ORDER_COL) {
    cublasLtMatrixLayoutCreate(&layout_, type, static_cast<uint64_t>(rows),
                               static_cast<uint64_t>(columns), ld);
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
    set(CUBLASLT_MATRIX_LAYOUT_ORDER, order);
  }
  Layout(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  operator cublasLtMatrixLayout_t() const { return layout_; }

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t id, T value) {
    CHECK_EQ(cublasLtMatrixLayoutSetAttribute(layout_, id, &value, sizeof value),
             CUBLAS_STATUS_SUCCESS);
  }
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Product {
 public:
  explicit Product(cublasComputeType_t compute = CUBLAS_COMPUTE_32F,
                   cudaDataType scale = CUDA_R_32F) {
    cublasLtMatmulDescCreate(&desc_, compute, scale);
  }
  Product(const Product&) = delete;
  ~Product() { cublasLtMatmulDescDestroy(desc_); }
  template <class T>
  Product& set(cublasLtMatmulDescAttributes_t id, T value) {
    CHECK_EQ(cublasLtMatmulDescSetAttribute(desc_, id, &value, sizeof value),
             CUBLAS_STATUS_SUCCESS);
    return *this;
  }
  Product& epilogue(cublasLtEpilogue_t value) {
    return set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(value));
  }
  cublasStatus_t run(const void* alpha, const void* a, const Layout& la, const void* b,
                     const Layout& lb, const void* beta, void* d, const Layout& ld) const {
    return cublasLtMatmul(handle(), desc_, alpha, a, la, b, lb, beta, d, ld, d, ld, nullptr,
                          nullptr, 0, nullptr);
  }
  cublasStatus_t ask(const Layout& a, const Layout& b, const Layout& d) const {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulHeuristicResult_t result{};
    int found = -1;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle(), desc_, a, b, d, d, preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    CHECK_EQ(found, status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
    return status;
  }

 private:
  cublasLtMatmulDesc_t desc_ = nullptr;
};

constexpr int kM = 5, kN = 3, kK = 4, kBatch = 2, kAuxLd = 128;
const float kOne = 1, kZero = 0;

// A * B of every matrix of the batch, column-major without gaps.
template <class T, class R>
std::vector<R> multiply(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<R> d(kM * kN * kBatch);
  for (int i = 0; i < kM * kN * kBatch; ++i) {
    const int row = i % kM, column = i / kM % kN, matrix = i / (kM * kN);
    for (int k = 0; k < kK; ++k) {
      d[i] += static_cast<R>(a[matrix * kM * kK + k * kM + row]) *
              static_cast<R>(b[matrix * kK * kN + column * kK + k]);
    }
  }
  return d;
}

// Float operands for a batch, and a bias per matrix.
struct Operands {
  Values values_a = numbers<float>(kM * kK * kBatch, 1),
         values_b = numbers<float>(kK * kN * kBatch, 2),
         bias_values = numbers<float>(kM * kBatch, 4);
  DeviceArray<float> a{values_a}, b{values_b}, bias{bias_values}, d{Values(kM * kN * kBatch)};
  Layout la{CUDA_R_32F, kM, kK, kM, kBatch, kM * kK}, lb{CUDA_R_32F, kK, kN, kK, kBatch, kK * kN},
      ld{CUDA_R_32F, kM, kN, kM, kBatch, kM * kN};
  Values product = multiply<float, float>(values_a, values_b);

  float with_bias(int i) const { return product[i] + bias_values[i / (kM * kN) * kM + i % kM]; }
  void run(Product& p, const float* alpha = &kOne, const float* beta = &kZero) {
    CHECK_EQ(p.run(alpha, a.get(), la, b.get(), lb, beta, d.get(), ld), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
};

Product& add_bias(Product& p, const Operands& o) {
  return p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias.get())
      .set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int64_t{kM});
}

void add_aux(Product& p, const void* aux, int64_t stride) {
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux)
      .set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{kAuxLd})
      .set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, stride);
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

}  // namespace

TEST(bias_and_relu_and_its_gradient) {
  Operands o;
  DeviceArray bits(std::vector<uint8_t>(kAuxLd / 8 * kN * kBatch, 0xff));
  Product forward;
  add_bias(forward, o).epilogue(CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
  add_aux(forward, bits.get(), kAuxLd * kN);
  o.run(forward);
  const Values got = o.d.read();
  for (int i = 0; i < kM * kN * kBatch; ++i) CHECK_EQ(got[i], std::fmax(o.with_bias(i), 0.f));

  DeviceArray sums(Values(kM * kBatch));
  Product backward;
  backward.epilogue(CUBLASLT_EPILOGUE_DRELU_BGRAD)
      .set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, sums.get())
      .set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int64_t{kM});
  add_aux(backward, bits.get(), kAuxLd * kN);
  o.run(backward);
  const Values gradient = o.d.read(), bias_gradient = sums.read();
  Values expected(kM * kBatch);
  for (int i = 0; i < kM * kN * kBatch; ++i) {
    CHECK_EQ(gradient[i], o.with_bias(i) > 0 ? o.product[i] : 0.f);
    expected[i / (kM * kN) * kM + i % kM] += gradient[i];
  }
  CHECK(bias_gradient == expected);
}

TEST(gelu_and_its_gradient) {
  Operands o;
  DeviceArray inputs(Values(kAuxLd * kN * kBatch));
  Product forward;
  add_bias(forward, o).epilogue(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  add_aux(forward, inputs.get(), kAuxLd * kN);
  o.run(forward);
  const Values got = o.d.read(), kept = inputs.read();
  Product backward;
  backward.epilogue(CUBLASLT_EPILOGUE_DGELU);
  add_aux(backward, inputs.get(), kAuxLd * kN);
  o.run(backward);
  const Values gradient = o.d.read();
  for (int i = 0; i < kM * kN * kBatch; ++i) {
    const double x = o.with_bias(i), step = 1e-5;
    CHECK(std::fabs(got[i] - gelu(x)) < 1e-5);
    CHECK_EQ(kept[i / kM * kAuxLd + i % kM], o.with_bias(i));
    const double slope = (gelu(x + step) - gelu(x - step)) / (2 * step);
    CHECK(std::fabs(gradient[i] - o.product[i] * slope) < 1e-3);
  }
}

TEST(gradients_of_the_inputs_are_sums_along_k) {
  for (const bool of_a : {true, false}) {
    Operands o;
    const int count = of_a ? kM : kN;
    DeviceArray sums(Values(count * kBatch));
    Product p;
    p.epilogue(of_a ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB)
        .set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, sums.get())
        .set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int64_t{count});
    o.run(p);
    CHECK(o.d.read() == o.product);
    Values expected(count * kBatch);
    for (int i = 0; i < count * kBatch; ++i) {
      const int matrix = i / count, at = i % count;
      for (int k = 0; k < kK; ++k) {
        expected[i] += of_a ? o.values_a[matrix * kM * kK + k * kM + at]
                            : o.values_b[matrix * kK * kN + at * kK + k];
      }
    }
    CHECK(sums.read() == expected);
  }
}

TEST(row_major_matrices) {
  for (int variant = 0; variant < 8; ++variant) {
    // Bits: order of A, B, D. The same numbers, read by rows, are the transposed matrices.
    const auto order = [&](int bit) {
      return variant >> bit & 1 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    };
    Operands o;
    const auto by_rows = [](const Values& v, int rows, int columns) {
      Values out(v.size());
      for (int i = 0; i < rows * columns; ++i) {
        out[(i % rows) * columns + i / rows] = v[i];
      }
      return out;
    };
    const bool ra = variant & 1, rb = variant & 2, rd = variant & 4;
    DeviceArray a(ra ? by_rows(o.values_a, kM, kK) : o.values_a),
        b(rb ? by_rows(o.values_b, kK, kN) : o.values_b), d(Values(kM * kN));
    const Layout la(CUDA_R_32F, kM, kK, ra ? kK : kM, 1, 0, order(0)),
        lb(CUDA_R_32F, kK, kN, rb ? kN : kK, 1, 0, order(1)),
        ld(CUDA_R_32F, kM, kN, rd ? kN : kM, 1, 0, order(2));
    CHECK_EQ(Product().run(&kOne, a.get(), la, b.get(), lb, &kZero, d.get(), ld),
             CUBLAS_STATUS_SUCCESS);
    Values expected(o.product.begin(), o.product.begin() + kM * kN);
    if (rd) expected = by_rows(expected, kM, kN);
    CHECK(d.read() == expected);
    Product relu;
    relu.epilogue(CUBLASLT_EPILOGUE_RELU);
    CHECK_EQ(relu.ask(la, lb, ld), rd ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS);
  }
}

TEST(factors_by_row) {
  Operands o;
  DeviceArray alphas(numbers<float>(kM, 5)), betas(numbers<float>(kM, 6));
  const Values before = o.d.read(), alpha = alphas.read(), beta = betas.read();
  const Values old = numbers<float>(kM * kN * kBatch, 7);
  const struct {
    cublasLtPointerMode_t mode;
    const float* beta;
  } cases[] = {{CUBLASLT_POINTER_MODE_DEVICE_VECTOR, betas.get()},
               {CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO, nullptr},
               {CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST, &kOne}};
  for (const auto& c : cases) {
    cudaMemcpy(o.d.get(), old.data(), old.size() * sizeof(float), cudaMemcpyHostToDevice);
    Product p;
    p.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, static_cast<int32_t>(c.mode));
    o.run(p, alphas.get(), c.beta);
    const Values got = o.d.read();
    for (int i = 0; i < kM * kN * kBatch; ++i) {
      const float factor = !c.beta ? 0 : c.beta == &kOne ? 1 : beta[i % kM];
      CHECK_EQ(got[i], alpha[i % kM] * o.product[i] + factor * old[i]);
    }
  }
}

TEST(eight_bit_integers) {
  const auto a = numbers<int8_t>(kM * kK * kBatch, 1), b = numbers<int8_t>(kK * kN * kBatch, 2);
  DeviceArray da(a), db(b), narrow(std::vector<int8_t>(kM * kN * kBatch));
  DeviceArray wide(std::vector<int32_t>(kM * kN * kBatch));
  const auto layout = [](cudaDataType type, int rows, int columns) {
    return std::make_unique<Layout>(type, rows, columns, rows, kBatch, rows * columns);
  };
  const auto la = layout(CUDA_R_8I, kM, kK), lb = layout(CUDA_R_8I, kK, kN);
  const auto lwide = layout(CUDA_R_32I, kM, kN), lnarrow = layout(CUDA_R_8I, kM, kN);
  const int32_t two = 2, zero = 0;
  const float three = 3;
  const Product whole(CUBLAS_COMPUTE_32I, CUDA_R_32I), scaled(CUBLAS_COMPUTE_32I, CUDA_R_32F);
  CHECK_EQ(whole.run(&two, da.get(), *la, db.get(), *lb, &zero, wide.get(), *lwide),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(scaled.run(&three, da.get(), *la, db.get(), *lb, &kZero, narrow.get(), *lnarrow),
           CUBLAS_STATUS_SUCCESS);
  const auto right = multiply<int8_t, int32_t>(a, b);
  const auto got = wide.read();
  const auto clamped = narrow.read();
  for (int i = 0; i < kM * kN * kBatch; ++i) {
    CHECK_EQ(got[i], 2 * right[i]);
    CHECK_EQ(int{clamped[i]}, std::min(std::max(3 * right[i], -128), 127));
  }
  CHECK_EQ(whole.ask(*la, *lb, *lnarrow), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(what_this_device_does_not_have_is_refused) {
  const Layout fp8(CUDA_R_8F_E4M3, 16, 16, 16), half(CUDA_R_16F, 16, 16, 16);
  CHECK_EQ(Product().ask(fp8, fp8, half), CUBLAS_STATUS_NOT_SUPPORTED);
  const Layout tiled(CUDA_R_16F, 16, 16, 16, 1, 0, CUBLASLT_ORDER_COL32);
  CHECK_EQ(Product().ask(tiled, half, half), CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK_EQ(Product().ask(half, half, half), CUBLAS_STATUS_SUCCESS);
}

TEST(epilogues_that_are_not_known_are_refused) {
  Operands o;
  for (const uint32_t unknown : {1u << 10, 1u << 10 | CUBLASLT_EPILOGUE_BIAS, 1u << 31}) {
    Product p;
    p.epilogue(static_cast<cublasLtEpilogue_t>(unknown))
        .set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias.get());
    CHECK_EQ(p.run(&kOne, o.a.get(), o.la, o.b.get(), o.lb, &kZero, o.d.get(), o.ld),
             CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_EQ(p.ask(o.la, o.lb, o.ld), CUBLAS_STATUS_NOT_SUPPORTED);
  }
}

TEST(unmapped_bias_of_a_later_matrix_is_a_fault) {
  Operands o;
  Product p;
  p.epilogue(CUBLASLT_EPILOGUE_BIAS)
      .set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias.get())
      .set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int64_t{1} << 36);
  CHECK_EQ(p.run(&kOne, o.a.get(), o.la, o.b.get(), o.lb, &kZero, o.d.get(), o.ld),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

CHECK_MAIN
