// cuSOLVER's eigenvalues: of Hermitian matrices, by LAPACK's divide and conquer whatever the method
// is called, and of general ones.
#include "api/solver/solver.h"

namespace softgpu::api {
namespace {

template <class T>
bool finite_triangle(char uplo, int n, const T* a, int lda) {
  for (int j = 0; j < n; ++j) {
    const T* column = a + int64_t{j} * lda;
    const bool good =
        uplo == 'U' ? all_finite(column, j + 1, 1, lda) : all_finite(column + j, n - j, 1, lda);
    if (!good) return false;
  }
  return true;
}

// Eigenvalues in ascending order, eigenvectors in the place of the matrix.
template <class T>
int eigen(char job, char uplo, int n, T* a, int lda, Real<T>* w) {
  if (!finite_triangle(uplo, n, a, lda)) return n;
  std::vector<int> integers(1);
  std::vector<Real<T>> reals(1);
  int integer_room = -1;
  return with_scratch<T>([&](T* work, int room) {
    if (room >= 0) {
      integer_room = integers[0];
      integers.resize(static_cast<size_t>(integer_room));
    }
    if constexpr (kComplex<T>) {
      const auto real_room = static_cast<size_t>(1 + 5 * int64_t{n} + 2 * int64_t{n} * n);
      if (room >= 0) reals.resize(real_room);
      return SOFTGPU_SPELLED_COMPLEX(T, heevd_work, job, uplo, n, a, lda, w, work, room,
                                     reals.data(), room < 0 ? -1 : static_cast<int>(real_room),
                                     integers.data(), integer_room);
    } else {
      return SOFTGPU_SPELLED_REAL(T, syevd_work, job, uplo, n, a, lda, w, work, room,
                                  integers.data(), integer_room);
    }
  });
}

template <class T>
SolverStatus syevd(void* handle, Vectors vectors, cublasFillMode_t uplo, int64_t n, T* a,
                   int64_t lda, Real<T>* w, int* infos, int64_t count = 1) {
  if (!is_size(n) || !is_size(count) || !is_distance(lda, n)) return kSolverInvalidValue;
  return solve_on_stream(handle,
                         {writes("matrix A", a, n, n * count, lda), writes("W", w, n * count),
                          writes("info", infos, count)},
                         [=] {
                           for (int64_t i = 0; i < count; ++i)
                             infos[i] = eigen(vectors == Vectors::kNone ? 'N' : 'V', letter(uplo),
                                              static_cast<int>(n), a + i * n * lda,
                                              static_cast<int>(lda), w + i * n);
                         });
}

// Eigenvalues of real matrices as LAPACK has them, in two arrays.
template <class T>
int general(char left, char right, int n, T* a, int lda, std::complex<Real<T>>* w, T* vl, int ldvl,
            T* vr, int ldvr) {
  if (!all_finite(a, n, n, lda)) return n;
  std::vector<Real<T>> first(static_cast<size_t>(2 * n)), second(static_cast<size_t>(n));
  return with_scratch<T>([&](T* work, int room) {
    if constexpr (kComplex<T>) {
      return SOFTGPU_SPELLED_COMPLEX(T, geev_work, left, right, n, a, lda, w, vl, ldvl, vr, ldvr,
                                     work, room, first.data());
    } else {
      const int info = SOFTGPU_SPELLED_REAL(T, geev_work, left, right, n, a, lda, first.data(),
                                            second.data(), vl, ldvl, vr, ldvr, work, room);
      for (size_t i = 0; i < second.size(); ++i) w[i] = {first[i], second[i]};
      return info;
    }
  });
}

struct General {
  Vectors left, right;
  int64_t n, lda, ldvl, ldvr;
  bool complex_values;
};

template <class T>
SolverStatus geev(void* handle, const General& g, T* a, void* w, T* vl, T* vr, int* info) {
  const bool left = g.left == Vectors::kWanted, right = g.right == Vectors::kWanted;
  const bool parts = !kComplex<T> && !g.complex_values;
  if (!is_size(g.n) || !is_distance(g.lda, g.n)) return kSolverInvalidValue;
  if (!is_distance(g.ldvl, left ? g.n : 1) || !is_distance(g.ldvr, right ? g.n : 1))
    return kSolverInvalidValue;
  return solve_on_stream(
      handle,
      {writes("matrix A", a, g.n, g.n, g.lda), writes("W", static_cast<Real<T>*>(w), 2 * g.n),
       writes("matrix VL", vl, left ? g.n : 0, g.n, g.ldvl),
       writes("matrix VR", vr, right ? g.n : 0, g.n, g.ldvr), writes("info", info, 1)},
      [=] {
        std::vector<std::complex<Real<T>>> values(static_cast<size_t>(g.n));
        *info = general(left ? 'V' : 'N', right ? 'V' : 'N', static_cast<int>(g.n), a,
                        static_cast<int>(g.lda), values.data(), vl, static_cast<int>(g.ldvl), vr,
                        static_cast<int>(g.ldvr));
        auto* const out = static_cast<Real<T>*>(w);
        for (int64_t i = 0; i < g.n; ++i) {
          const auto value = values[static_cast<size_t>(i)];
          out[parts ? i : 2 * i] = value.real();
          out[parts ? g.n + i : 2 * i + 1] = value.imag();
        }
      });
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using fill = cublasFillMode_t;

SOFTGPU_API SolverStatus cusolverDnSsyevd_bufferSize(void* h, Vectors, fill, int n, const float*,
                                                     int, const float*, int* room) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnDsyevd_bufferSize(void* h, Vectors, fill, int n, const double*,
                                                     int, const double*, int* room) {
  return api::scratch(h, room, n);
}

SOFTGPU_API SolverStatus cusolverDnSsyevd(void* h, Vectors job, fill uplo, int n, float* a, int lda,
                                          float* w, float*, int, int* info) {
  return api::syevd(h, job, uplo, n, a, lda, w, info);
}
SOFTGPU_API SolverStatus cusolverDnDsyevd(void* h, Vectors job, fill uplo, int n, double* a,
                                          int lda, double* w, double*, int, int* info) {
  return api::syevd(h, job, uplo, n, a, lda, w, info);
}

SOFTGPU_API SolverStatus cusolverDnSsyevj_bufferSize(void* h, Vectors, fill, int n, const float*,
                                                     int, const float*, int* room, void*) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnDsyevj_bufferSize(void* h, Vectors, fill, int n, const double*,
                                                     int, const double*, int* room, void*) {
  return api::scratch(h, room, n);
}

SOFTGPU_API SolverStatus cusolverDnSsyevj(void* h, Vectors job, fill uplo, int n, float* a, int lda,
                                          float* w, float*, int, int* info, void*) {
  return api::syevd(h, job, uplo, n, a, lda, w, info);
}
SOFTGPU_API SolverStatus cusolverDnDsyevj(void* h, Vectors job, fill uplo, int n, double* a,
                                          int lda, double* w, double*, int, int* info, void*) {
  return api::syevd(h, job, uplo, n, a, lda, w, info);
}

SOFTGPU_API SolverStatus cusolverDnSsyevjBatched_bufferSize(void* h, Vectors, fill, int n,
                                                            const float*, int, const float*,
                                                            int* room, void*, int count) {
  return api::scratch(h, room, n, count);
}
SOFTGPU_API SolverStatus cusolverDnDsyevjBatched_bufferSize(void* h, Vectors, fill, int n,
                                                            const double*, int, const double*,
                                                            int* room, void*, int count) {
  return api::scratch(h, room, n, count);
}

SOFTGPU_API SolverStatus cusolverDnSsyevjBatched(void* h, Vectors job, fill uplo, int n, float* a,
                                                 int lda, float* w, float*, int, int* infos, void*,
                                                 int count) {
  return api::syevd(h, job, uplo, n, a, lda, w, infos, count);
}
SOFTGPU_API SolverStatus cusolverDnDsyevjBatched(void* h, Vectors job, fill uplo, int n, double* a,
                                                 int lda, double* w, double*, int, int* infos,
                                                 void*, int count) {
  return api::syevd(h, job, uplo, n, a, lda, w, infos, count);
}

SOFTGPU_API SolverStatus cusolverDnCheevd_bufferSize(void* h, Vectors, fill, int n, const Single*,
                                                     int, const float*, int* room) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnZheevd_bufferSize(void* h, Vectors, fill, int n, const Double*,
                                                     int, const double*, int* room) {
  return api::scratch(h, room, n);
}

SOFTGPU_API SolverStatus cusolverDnCheevd(void* h, Vectors job, fill uplo, int n, Single* a,
                                          int lda, float* w, Single*, int, int* info) {
  return api::syevd(h, job, uplo, n, a, lda, w, info);
}
SOFTGPU_API SolverStatus cusolverDnZheevd(void* h, Vectors job, fill uplo, int n, Double* a,
                                          int lda, double* w, Double*, int, int* info) {
  return api::syevd(h, job, uplo, n, a, lda, w, info);
}

SOFTGPU_API SolverStatus cusolverDnCheevj_bufferSize(void* h, Vectors, fill, int n, const Single*,
                                                     int, const float*, int* room, void*) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnZheevj_bufferSize(void* h, Vectors, fill, int n, const Double*,
                                                     int, const double*, int* room, void*) {
  return api::scratch(h, room, n);
}

SOFTGPU_API SolverStatus cusolverDnCheevj(void* h, Vectors job, fill uplo, int n, Single* a,
                                          int lda, float* w, Single*, int, int* info, void*) {
  return api::syevd(h, job, uplo, n, a, lda, w, info);
}
SOFTGPU_API SolverStatus cusolverDnZheevj(void* h, Vectors job, fill uplo, int n, Double* a,
                                          int lda, double* w, Double*, int, int* info, void*) {
  return api::syevd(h, job, uplo, n, a, lda, w, info);
}

SOFTGPU_API SolverStatus cusolverDnCheevjBatched_bufferSize(void* h, Vectors, fill, int n,
                                                            const Single*, int, const float*,
                                                            int* room, void*, int count) {
  return api::scratch(h, room, n, count);
}
SOFTGPU_API SolverStatus cusolverDnZheevjBatched_bufferSize(void* h, Vectors, fill, int n,
                                                            const Double*, int, const double*,
                                                            int* room, void*, int count) {
  return api::scratch(h, room, n, count);
}

SOFTGPU_API SolverStatus cusolverDnCheevjBatched(void* h, Vectors job, fill uplo, int n, Single* a,
                                                 int lda, float* w, Single*, int, int* infos, void*,
                                                 int count) {
  return api::syevd(h, job, uplo, n, a, lda, w, infos, count);
}
SOFTGPU_API SolverStatus cusolverDnZheevjBatched(void* h, Vectors job, fill uplo, int n, Double* a,
                                                 int lda, double* w, Double*, int, int* infos,
                                                 void*, int count) {
  return api::syevd(h, job, uplo, n, a, lda, w, infos, count);
}

SOFTGPU_API SolverStatus cusolverDnXsyevd_bufferSize(void* h, void*, Vectors, fill, int64_t n,
                                                     cudaDataType, const void*, int64_t,
                                                     cudaDataType, const void*, cudaDataType,
                                                     size_t* device, size_t* host) {
  return api::scratch(h, device, host, n);
}
SOFTGPU_API SolverStatus cusolverDnXsyevd(void* h, void*, Vectors job, fill uplo, int64_t n,
                                          cudaDataType type, void* a, int64_t lda, cudaDataType,
                                          void* w, cudaDataType, void*, size_t, void*, size_t,
                                          int* info) {
  return api::by_type(type, [=]<class T>(T*) {
    return api::syevd(h, job, uplo, n, static_cast<T*>(a), lda, static_cast<api::Real<T>*>(w),
                      info);
  });
}
SOFTGPU_API SolverStatus cusolverDnXsyevBatched_bufferSize(void* h, void*, Vectors, fill, int64_t n,
                                                           cudaDataType, const void*, int64_t,
                                                           cudaDataType, const void*, cudaDataType,
                                                           size_t* device, size_t* host,
                                                           int64_t count) {
  return api::scratch(h, device, host, n, count);
}
SOFTGPU_API SolverStatus cusolverDnXsyevBatched(void* h, void*, Vectors job, fill uplo, int64_t n,
                                                cudaDataType type, void* a, int64_t lda,
                                                cudaDataType, void* w, cudaDataType, void*, size_t,
                                                void*, size_t, int* infos, int64_t count) {
  return api::by_type(type, [=]<class T>(T*) {
    return api::syevd(h, job, uplo, n, static_cast<T*>(a), lda, static_cast<api::Real<T>*>(w),
                      infos, count);
  });
}

SOFTGPU_API SolverStatus cusolverDnXgeev_bufferSize(void* h, void*, Vectors, Vectors, int64_t n,
                                                    cudaDataType, const void*, int64_t,
                                                    cudaDataType, const void*, cudaDataType,
                                                    const void*, int64_t, cudaDataType, const void*,
                                                    int64_t, cudaDataType, size_t* device,
                                                    size_t* host) {
  return api::scratch(h, device, host, n);
}
SOFTGPU_API SolverStatus cusolverDnXgeev(void* h, void*, Vectors left, Vectors right, int64_t n,
                                         cudaDataType type, void* a, int64_t lda,
                                         cudaDataType type_w, void* w, cudaDataType type_vl,
                                         void* vl, int64_t ldvl, cudaDataType type_vr, void* vr,
                                         int64_t ldvr, cudaDataType, void*, size_t, void*, size_t,
                                         int* info) {
  if ((left == Vectors::kWanted && type_vl != type) ||
      (right == Vectors::kWanted && type_vr != type))
    return api::kSolverNotSupported;
  const bool complex_values = type_w == CUDA_C_32F || type_w == CUDA_C_64F;
  const api::General general{left, right, n, lda, ldvl, ldvr, complex_values};
  return api::by_type(type, [=]<class T>(T*) {
    return api::geev(h, general, static_cast<T*>(a), w, static_cast<T*>(vl), static_cast<T*>(vr),
                     info);
  });
}
