// Batched factorisations, least squares and triangular solves in all four types, by what defines
// their results.
#include <algorithm>
#include <complex>

#include "api/blas/cublas_types.h"
#include "check.h"
#include "device_array.h"

namespace {

using Single = std::complex<float>;
using Double = std::complex<double>;

// cuBLAS's spelling of a type, and of its calls.
template <class T>
struct Calls;
#define CALLS(T, Cu, letter)                                          \
  template <>                                                         \
  struct Calls<T> {                                                   \
    using Element = Cu;                                               \
    static constexpr auto getrf = cublas##letter##getrfBatched;       \
    static constexpr auto getrs = cublas##letter##getrsBatched;       \
    static constexpr auto geqrf = cublas##letter##geqrfBatched;       \
    static constexpr auto gels = cublas##letter##gelsBatched;         \
    static constexpr auto trsm = cublas##letter##trsm_v2;             \
    static constexpr auto trsm_batched = cublas##letter##trsmBatched; \
    static constexpr auto gemv = cublas##letter##gemv_v2;             \
    static constexpr auto axpy = cublas##letter##axpy_v2;             \
  };
CALLS(float, float, S)
CALLS(double, double, D)
CALLS(Single, cuComplex, C)
CALLS(Double, cuDoubleComplex, Z)
#undef CALLS

cublasHandle_t handle() {
  static cublasHandle_t h = [] {
    cublasHandle_t made = nullptr;
    CHECK_EQ(cublasCreate_v2(&made), CUBLAS_STATUS_SUCCESS);
    return made;
  }();
  return h;
}

template <class T>
constexpr bool kComplex = std::is_same_v<T, Single> || std::is_same_v<T, Double>;

template <class T>
T conjugated(T value) {
  if constexpr (kComplex<T>) return std::conj(value);
  return value;
}

template <class T>
T number(int i) {
  const auto real = static_cast<float>(i * 7 % 11) - 5;
  if constexpr (kComplex<T>) return {real, static_cast<float>(i * 3 % 7) - 3};
  return static_cast<T>(real);
}

// Column-major. Square ones have a heavy diagonal, so that they can be solved.
template <class T>
struct Matrix {
  Matrix(int rows, int columns, int seed = 0) : rows(rows), columns(columns) {
    for (int i = 0; i < rows * columns; ++i) values.push_back(number<T>(i + seed));
    for (int i = 0; i < std::min(rows, columns) && seed; ++i) at(i, i) += T(30);
  }
  T& at(int row, int column) { return values[column * rows + row]; }
  T at(int row, int column) const { return values[column * rows + row]; }
  int rows, columns;
  std::vector<T> values;
};

template <class T>
Matrix<T> operator*(const Matrix<T>& a, const Matrix<T>& b) {
  Matrix<T> out(a.rows, b.columns);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < b.columns; ++j) {
      out.at(i, j) = T{};
      for (int k = 0; k < a.columns; ++k) out.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return out;
}

template <class T>
Matrix<T> applied(cublasOperation_t op, const Matrix<T>& a) {
  if (op == CUBLAS_OP_N) return a;
  Matrix<T> out(a.columns, a.rows);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.columns; ++j) {
      out.at(j, i) = op == CUBLAS_OP_C ? conjugated(a.at(i, j)) : a.at(i, j);
    }
  }
  return out;
}

template <class T>
bool near(const Matrix<T>& a, const Matrix<T>& b, double allowed = 2e-3) {
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (!(std::abs(a.values[i] - b.values[i]) < allowed)) return false;
  }
  return a.values.size() == b.values.size();
}

template <class T>
auto* element(T* pointer) {
  using Element = typename Calls<std::remove_const_t<T>>::Element;
  return reinterpret_cast<std::conditional_t<std::is_const_v<T>, const Element*, Element*>>(
      pointer);
}

// Two matrices one behind the other, and the array of their addresses.
template <class T>
struct Pair {
  Pair(const Matrix<T>& first, const Matrix<T>& second)
      : shape(first), values([&] {
          std::vector<T> all = first.values;
          all.insert(all.end(), second.values.begin(), second.values.end());
          return all;
        }()) {}
  auto* get() const { return reinterpret_cast<typename Calls<T>::Element**>(addresses.get()); }
  Matrix<T> read(int index) const {
    const std::vector<T> all = values.read();
    Matrix<T> out(shape);
    const auto size = static_cast<std::ptrdiff_t>(shape.values.size());
    std::copy_n(all.begin() + index * size, size, out.values.begin());
    return out;
  }
  Matrix<T> shape;
  DeviceArray<T> values;
  DeviceArray<T*> addresses{values.slots(shape.values.size())};
};

constexpr int kN = 4, kColumns = 2;

template <class T>
void solve_by_lu() {
  const Matrix<T> first(kN, kN, 1), second(kN, kN, 5);
  for (const auto op : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
    for (const bool exchange : {true, false}) {
      const Matrix<T> x(kN, kColumns, 3), y(kN, kColumns, 8);
      const Pair<T> a(first, second), b(applied(op, first) * x, applied(op, second) * y);
      const DeviceArray pivots(std::vector<int>(2 * kN)), infos(std::vector<int>{-7, -7});
      int info = -7, *chosen = exchange ? pivots.get() : nullptr;
      CHECK_EQ(Calls<T>::getrf(handle(), kN, a.get(), kN, chosen, infos.get(), 2),
               CUBLAS_STATUS_SUCCESS);
      CHECK_EQ(
          Calls<T>::getrs(handle(), op, kN, kColumns, a.get(), kN, chosen, b.get(), kN, &info, 2),
          CUBLAS_STATUS_SUCCESS);
      CHECK_EQ(info, 0);
      CHECK(infos.read() == std::vector<int>(2));
      CHECK(near(b.read(0), x));
      CHECK(near(b.read(1), y));
    }
  }
}

// R is upper triangular with R^H R = A^H A, since Q has orthonormal columns.
template <class T>
void factor_by_qr() {
  for (const int rows : {6, 3}) {
    const int columns = 4, shorter = std::min(rows, columns);
    const Matrix<T> first(rows, columns, 1), second(rows, columns, 5);
    const Pair<T> a(first, second), tau(Matrix<T>(shorter, 1), Matrix<T>(shorter, 1));
    int info = -7;
    CHECK_EQ(Calls<T>::geqrf(handle(), rows, columns, a.get(), rows, tau.get(), &info, 2),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(info, 0);
    for (int i = 0; i < 2; ++i) {
      const Matrix<T>& given = i ? second : first;
      Matrix<T> r = a.read(i);
      for (int column = 0; column < columns; ++column) {
        for (int row = column + 1; row < rows; ++row) r.at(row, column) = T{};
      }
      CHECK(near(applied(CUBLAS_OP_C, r) * r, applied(CUBLAS_OP_C, given) * given, 0.02));
      CHECK(std::abs(tau.read(i).at(0, 0)) > 0.1);
    }
  }
}

// The residual is orthogonal to the columns of A.
template <class T>
void least_squares() {
  const int rows = 6, columns = 3;
  const Matrix<T> first(rows, columns, 1), second(rows, columns, 5), b(rows, kColumns),
      c(rows, kColumns, 2);
  const Pair<T> as(first, second), bs(b, c);
  const DeviceArray infos(std::vector<int>{-7, -7});
  int info = -7;
  CHECK_EQ(Calls<T>::gels(handle(), CUBLAS_OP_N, rows, columns, kColumns, as.get(), rows, bs.get(),
                          rows, &info, infos.get(), 2),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(info, 0);
  CHECK(infos.read() == std::vector<int>(2));
  for (int i = 0; i < 2; ++i) {
    const Matrix<T>& a = i ? second : first;
    Matrix<T> x(columns, kColumns);
    for (int j = 0; j < columns * kColumns; ++j) {
      x.values[j] = bs.read(i).at(j % columns, j / columns);
    }
    CHECK(near(applied(CUBLAS_OP_C, a) * (a * x), applied(CUBLAS_OP_C, a) * (i ? c : b), 0.02));
  }
}

// The triangle that is used of `a`, with ones on the diagonal if it is taken for granted.
template <class T>
Matrix<T> triangle(const Matrix<T>& a, bool upper, bool unit) {
  Matrix<T> out(a);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.columns; ++j) {
      if (upper ? i > j : i < j) out.at(i, j) = T{};
      if (i == j && unit) out.at(i, j) = T(1);
    }
  }
  return out;
}

template <class T>
void solve_triangles() {
  for (int variant = 0; variant < 24; ++variant) {
    const bool left = variant & 1, upper = variant & 2, unit = variant & 4;
    const auto op = static_cast<cublasOperation_t>(variant / 8);
    // Small off the diagonal, for solutions stay small where it counts as ones.
    Matrix<T> a(kN, kN), x(left ? kN : kColumns, left ? kColumns : kN, 3);
    for (T& value : a.values) value *= T(0.0625f);
    for (int i = 0; i < kN; ++i) a.at(i, i) += T(2);
    const Matrix<T> t = applied(op, triangle(a, upper, unit));
    const Matrix<T> b = left ? t * x : x * t;
    const Pair<T> as(a, a), bs(b, b);
    const DeviceArray one_b(b.values);
    const T one(1);
    const auto side = left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
    const auto fill = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
    const auto diagonal = unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
    CHECK_EQ(Calls<T>::trsm(handle(), side, fill, op, diagonal, b.rows, b.columns, element(&one),
                            element(as.values.get()), kN, element(one_b.get()), b.rows),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(Calls<T>::trsm_batched(handle(), side, fill, op, diagonal, b.rows, b.columns,
                                    element(&one), as.get(), kN, bs.get(), b.rows, 2),
             CUBLAS_STATUS_SUCCESS);
    CHECK(near(bs.read(1), x));
    CHECK(one_b.read() == bs.read(0).values);
  }
}

// y = alpha op(A) x + beta y on vectors with gaps, one of them backwards.
template <class T>
void multiply_vectors() {
  for (const auto op : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
    const Matrix<T> a(3, kN, 1);
    const int in = op == CUBLAS_OP_N ? kN : 3, out = op == CUBLAS_OP_N ? 3 : kN;
    const Matrix<T> x(in * 2, 1, 4), y(out * 3, 1, 2);
    const DeviceArray da(a.values), dx(x.values), dy(y.values);
    const T alpha(2), beta(-1);
    CHECK_EQ(Calls<T>::gemv(handle(), op, 3, kN, element(&alpha), element(da.get()), 3,
                            element(dx.get()), -2, element(&beta), element(dy.get()), 3),
             CUBLAS_STATUS_SUCCESS);
    Matrix<T> dense(in, 1), expected(y);
    for (int i = 0; i < in; ++i) dense.values[i] = x.values[2 * (in - 1 - i)];
    const Matrix<T> product = applied(op, a) * dense;
    for (int i = 0; i < out; ++i) {
      expected.values[3 * i] = alpha * product.values[i] + beta * y.values[3 * i];
    }
    CHECK(dy.read() == expected.values);
    CHECK_EQ(Calls<T>::axpy(handle(), out, element(&alpha), element(dy.get()), 3,
                            element(dy.get() + 1), 3),
             CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < out; ++i) {
      expected.values[3 * i + 1] += alpha * expected.values[3 * i];
    }
    CHECK(dy.read() == expected.values);
  }
}

#define FOR_ALL_TYPES(check) \
  check<float>();            \
  check<double>();           \
  check<Single>();           \
  check<Double>();

}  // namespace

TEST(lu_with_and_without_row_exchanges){FOR_ALL_TYPES(solve_by_lu)} TEST(qr){
    FOR_ALL_TYPES(factor_by_qr)} TEST(least_squares_by_qr){
    FOR_ALL_TYPES(least_squares)} TEST(triangles){
    FOR_ALL_TYPES(solve_triangles)} TEST(matrix_times_vector){FOR_ALL_TYPES(multiply_vectors)}

TEST(a_zero_pivot_is_named) {
  const DeviceArray a(std::vector<float>{1, 2, 2, 4});
  const DeviceArray pivots(std::vector<int>(2)), info(std::vector<int>{-7});
  const DeviceArray slots(std::vector<float*>{a.get()});
  CHECK_EQ(cublasSgetrfBatched(handle(), 2, slots.get(), 2, pivots.get(), info.get(), 1),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(info.read()[0], 2);
}

TEST(matrices_without_elements_need_no_addresses) {
  int info = -7;
  CHECK_EQ(cublasSgeqrfBatched(handle(), 0, 3, nullptr, 1, nullptr, &info, 2),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(info, 0);
}

CHECK_MAIN
