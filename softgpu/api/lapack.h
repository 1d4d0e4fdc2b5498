// The host's LAPACK for four types of elements.
#ifndef SOFTGPU_API_LAPACK_H_
#define SOFTGPU_API_LAPACK_H_

#include <complex>
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <lapacke.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace softgpu::api {

using Single = std::complex<float>;
using Double = std::complex<double>;

template <class T>
inline constexpr bool kComplex = std::is_same_v<T, Single> || std::is_same_v<T, Double>;
// The type of singular values, and of eigenvalues of Hermitian matrices.
template <class T>
using Real = decltype(std::abs(T{}));

// LAPACK's four spellings of one routine. The `_work` forms take any value, not a number included.
template <class T, class S, class D, class C, class Z, class... Args>
int spelled(S s, D d, C c, Z z, Args... args) {
  if constexpr (std::is_same_v<T, float>) {
    return s(LAPACK_COL_MAJOR, args...);
  } else if constexpr (std::is_same_v<T, double>) {
    return d(LAPACK_COL_MAJOR, args...);
  } else if constexpr (std::is_same_v<T, Single>) {
    return c(LAPACK_COL_MAJOR, args...);
  } else {
    return z(LAPACK_COL_MAJOR, args...);
  }
}
#define SOFTGPU_SPELLED(T, name, ...) SOFTGPU_SPELLED_MIXED(T, name, name, __VA_ARGS__)
// `name` for real elements, `complex_name` for complex ones, with the same arguments.
#define SOFTGPU_SPELLED_MIXED(T, name, complex_name, ...)                                 \
  spelled<T>(scipy_LAPACKE_s##name, scipy_LAPACKE_d##name, scipy_LAPACKE_c##complex_name, \
             scipy_LAPACKE_z##complex_name, __VA_ARGS__)
// Where the arguments differ.
#define SOFTGPU_SPELLED_REAL(T, name, ...) \
  spelled<T>(scipy_LAPACKE_s##name, scipy_LAPACKE_d##name, nullptr, nullptr, __VA_ARGS__)
#define SOFTGPU_SPELLED_COMPLEX(T, name, ...) \
  spelled<T>(nullptr, nullptr, scipy_LAPACKE_c##name, scipy_LAPACKE_z##name, __VA_ARGS__)

// LU without row exchanges, which LAPACK does not have. Returns the first zero pivot, from 1.
template <class T>
int factor_without_pivots(int m, int n, T* a, int lda) {
  int zero = 0;
  for (int k = 0; k < std::min(m, n); ++k) {
    const T pivot = a[k + int64_t{k} * lda];
    if (pivot == T{}) {
      zero = zero ? zero : k + 1;
      continue;
    }
    for (int i = k + 1; i < m; ++i) a[i + int64_t{k} * lda] /= pivot;
    for (int j = k + 1; j < n; ++j) {
      T* column = a + int64_t{j} * lda;
      for (int i = k + 1; i < m; ++i) column[i] -= a[i + int64_t{k} * lda] * column[k];
    }
  }
  return zero;
}

}  // namespace softgpu::api

#endif  // SOFTGPU_API_LAPACK_H_
