// cuSOLVER's singular values, by LAPACK's divide and conquer whatever the method is called.
#include <memory>

#include "api/solver/solver.h"

namespace softgpu::api {
namespace {

// What LAPACK does not do with values that are no numbers.
constexpr int kNotConverged = 1;

// A = U diag(S) VT. U and VT are square with job 'A', have min(m, n) columns and rows with 'S', and
// are left alone with 'N'. Destroys A.
template <class T>
int divide(char job, int m, int n, T* a, int lda, Real<T>* s, T* u, int ldu, T* vt, int ldvt) {
  const int64_t small = std::min(m, n), large = std::max(m, n);
  if (!all_finite(a, m, n, lda)) return kNotConverged;
  std::vector<int> integers(static_cast<size_t>(8 * small + 1));
  std::vector<Real<T>> reals;
  // What LAPACK asks for at most: 5 k^2 + 7 k, or 2 m n + 2 k^2 + k.
  if (kComplex<T>) reals.resize(static_cast<size_t>(small * (7 * small + 2 * large + 8) + 1));
  return with_scratch<T>([&](T* work, int room) {
    if constexpr (kComplex<T>) {
      return SOFTGPU_SPELLED_COMPLEX(T, gesdd_work, job, m, n, a, lda, s, u, ldu, vt, ldvt, work,
                                     room, reals.data(), integers.data());
    } else {
      return SOFTGPU_SPELLED_REAL(T, gesdd_work, job, m, n, a, lda, s, u, ldu, vt, ldvt, work, room,
                                  integers.data());
    }
  });
}

// As gesvd has the jobs of U and VT.
template <class T>
int iterate(char jobu, char jobvt, int m, int n, T* a, int lda, Real<T>* s, T* u, int ldu, T* vt,
            int ldvt) {
  if (!all_finite(a, m, n, lda)) return kNotConverged;
  std::vector<Real<T>> reals(static_cast<size_t>(5 * int64_t{std::min(m, n)} + 1));
  return with_scratch<T>([&](T* work, int room) {
    if constexpr (kComplex<T>) {
      return SOFTGPU_SPELLED_COMPLEX(T, gesvd_work, jobu, jobvt, m, n, a, lda, s, u, ldu, vt, ldvt,
                                     work, room, reals.data());
    } else {
      return SOFTGPU_SPELLED_REAL(T, gesvd_work, jobu, jobvt, m, n, a, lda, s, u, ldu, vt, ldvt,
                                  work, room);
    }
  });
}

template <class T>
SolverStatus gesvd(void* handle, char jobu, char jobvt, int m, int n, T* a, int lda, Real<T>* s,
                   T* u, int ldu, T* vt, int ldvt, int* info) {
  if (n < 0 || m < n || !is_distance(lda, m)) return kSolverInvalidValue;  // nor does cuSOLVER
  const int u_columns = jobu == 'A' ? m : jobu == 'S' ? n : 0;
  const int vt_rows = jobvt == 'A' || jobvt == 'S' ? n : 0;
  if (!is_distance(ldu, u_columns ? m : 1) || !is_distance(ldvt, vt_rows))
    return kSolverInvalidValue;
  return solve_on_stream(handle,
                         {writes("matrix A", a, m, n, lda), writes("S", s, n),
                          writes("matrix U", u, m, u_columns, ldu),
                          writes("matrix VT", vt, vt_rows, n, ldvt), writes("info", info, 1)},
                         [=] { *info = iterate(jobu, jobvt, m, n, a, lda, s, u, ldu, vt, ldvt); });
}

template <class T>
T conjugate(T value) {
  if constexpr (kComplex<T>)
    return std::conj(value);
  else
    return value;
}

// V of its conjugate transpose.
template <class T>
void turn(const T* vt, int64_t ldvt, int64_t rows, int64_t columns, T* v, int64_t ldv) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) v[i + j * ldv] = conjugate(vt[j + i * ldvt]);
}

// A batch of matrices, and where their results go: V itself, not its conjugate transpose.
template <class T>
struct Batch {
  Vectors vectors;
  int m, n;
  T* a;
  int lda;
  int64_t stride_a;
  Real<T>* s;
  int64_t stride_s;
  T* u;
  int ldu;
  int64_t stride_u;
  T* v;
  int ldv;
  int64_t stride_v;
  int* infos;
  int count;
  int u_columns, v_columns;  // that are wanted

  bool wanted() const { return vectors == Vectors::kWanted; }
  bool valid() const {
    if (m < 0 || n < 0 || count < 0 || !is_distance(lda, m)) return false;
    return !wanted() || (is_distance(ldu, m) && is_distance(ldv, n));
  }
  std::vector<Touched> memory(bool a_is_kept, int values) const {
    std::vector<Touched> all{writes("info", infos, count)};
    for (int64_t i = 0; i < count; ++i) {
      all.push_back(touched("matrix A", a + i * stride_a, m, n, lda, !a_is_kept));
      all.push_back(writes("S", s + i * stride_s, values));
      if (!wanted()) continue;
      all.push_back(writes("matrix U", u + i * stride_u, m, u_columns, ldu));
      all.push_back(writes("matrix V", v + i * stride_v, n, v_columns, ldv));
    }
    return all;
  }
};

// One matrix of a batch, all of whose columns of U are wanted, or min(m, n).
template <class T>
int one_of(const Batch<T>& b, int64_t i) {
  const int small = std::min(b.m, b.n);
  const char job = !b.wanted() ? 'N' : b.u_columns > small || b.v_columns > small ? 'A' : 'S';
  const int rows = job == 'A' ? b.n : small;
  std::vector<T> vt(static_cast<size_t>(b.wanted() ? int64_t{rows} * b.n : 0));
  const int ldvt = std::max(rows, 1);
  const int info =
      divide(job, b.m, b.n, b.a + i * b.stride_a, b.lda, b.s + i * b.stride_s,
             b.wanted() ? b.u + i * b.stride_u : nullptr, b.wanted() ? b.ldu : 1, vt.data(), ldvt);
  if (b.wanted()) turn(vt.data(), ldvt, b.n, b.v_columns, b.v + i * b.stride_v, b.ldv);
  // That of Jacobi's method when it gives up.
  return info > 0 ? small + 1 : info;
}

template <class T>
SolverStatus gesvdj(void* handle, const Batch<T>& b) {
  if (!b.valid()) return kSolverInvalidValue;
  return solve_on_stream(handle, b.memory(false, std::min(b.m, b.n)), [=] {
    for (int64_t i = 0; i < b.count; ++i) b.infos[i] = one_of(b, i);
  });
}

template <class T>
SolverStatus gesvdj_of_one(void* handle, Vectors vectors, int economic, int m, int n, T* a, int lda,
                           Real<T>* s, T* u, int ldu, T* v, int ldv, int* info) {
  const int small = std::min(m, n);
  return gesvdj(handle, Batch<T>{vectors, m, n, a, lda, 0, s, 0, u, ldu, 0, v, ldv, 0, info, 1,
                                 economic ? small : m, economic ? small : n});
}

// Matrices one behind the other.
template <class T>
SolverStatus gesvdj_batched(void* handle, Vectors vectors, int m, int n, T* a, int lda, Real<T>* s,
                            T* u, int ldu, T* v, int ldv, int* infos, int count) {
  if (m > 32 || n > 32) return kSolverInvalidValue;  // nor does cuSOLVER
  return gesvdj(handle, Batch<T>{vectors, m, n, a, lda, int64_t{lda} * n, s, std::min(m, n), u, ldu,
                                 int64_t{ldu} * m, v, ldv, int64_t{ldv} * n, infos, count, m, n});
}

template <class T>
double norm(const std::vector<T>& values) {
  double sum = 0;
  for (const T& value : values) sum += std::norm(std::complex<double>(value));
  return std::sqrt(sum);
}

// The `rank` largest singular values and their vectors of matrices that stay as they are. Returns
// the Frobenius norm of what they leave of the matrix.
template <class T>
double largest(const Batch<T>& b, int64_t i, int rank) {
  const int small = std::min(b.m, b.n);
  const auto size = [](int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows * columns);
  };
  std::vector<T> a(size(b.m, b.n)), u(size(b.m, small)), vt(size(small, b.n));
  std::vector<Real<T>> s(static_cast<size_t>(small));
  for (int64_t j = 0; j < b.n; ++j)
    std::copy_n(b.a + i * b.stride_a + j * b.lda, b.m, a.data() + j * b.m);
  const int lda = std::max(b.m, 1), ldvt = std::max(small, 1);
  b.infos[i] = divide(b.wanted() ? 'S' : 'N', b.m, b.n, a.data(), lda, s.data(), u.data(), lda,
                      vt.data(), ldvt);
  std::copy_n(s.data(), rank, b.s + i * b.stride_s);
  s.erase(s.begin(), s.begin() + rank);
  if (!b.wanted()) return norm(s);
  for (int64_t j = 0; j < rank; ++j)
    std::copy_n(u.data() + j * b.m, b.m, b.u + i * b.stride_u + j * b.ldu);
  turn(vt.data(), ldvt, b.n, rank, b.v + i * b.stride_v, b.ldv);
  return norm(s);
}

template <class T>
SolverStatus gesvda(void* handle, int rank, const Batch<T>& b, double* residuals) {
  if (!b.valid() || rank < 0 || rank > std::min(b.m, b.n)) return kSolverInvalidValue;
  const auto norms = std::make_shared<std::vector<double>>(static_cast<size_t>(b.count));
  const SolverStatus status = solve_on_stream(handle, b.memory(true, rank), [=] {
    for (int64_t i = 0; i < b.count; ++i) (*norms)[static_cast<size_t>(i)] = largest(b, i, rank);
  });
  if (status != kSolverSuccess || !residuals) return status;
  // Memory of the host: it is written before this returns.
  if (!finish_solver(handle)) return kSolverExecutionFailed;
  std::ranges::copy(*norms, residuals);
  return kSolverSuccess;
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;

SOFTGPU_API SolverStatus cusolverDnSgesvd_bufferSize(void* h, int m, int n, int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnDgesvd_bufferSize(void* h, int m, int n, int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnCgesvd_bufferSize(void* h, int m, int n, int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnZgesvd_bufferSize(void* h, int m, int n, int* room) {
  return api::scratch(h, room, m, n);
}

SOFTGPU_API SolverStatus cusolverDnSgesvd(void* h, signed char jobu, signed char jobvt, int m,
                                          int n, float* a, int lda, float* s, float* u, int ldu,
                                          float* vt, int ldvt, float*, int, float*, int* info) {
  return api::gesvd(h, static_cast<char>(jobu), static_cast<char>(jobvt), m, n, a, lda, s, u, ldu,
                    vt, ldvt, info);
}
SOFTGPU_API SolverStatus cusolverDnDgesvd(void* h, signed char jobu, signed char jobvt, int m,
                                          int n, double* a, int lda, double* s, double* u, int ldu,
                                          double* vt, int ldvt, double*, int, double*, int* info) {
  return api::gesvd(h, static_cast<char>(jobu), static_cast<char>(jobvt), m, n, a, lda, s, u, ldu,
                    vt, ldvt, info);
}
SOFTGPU_API SolverStatus cusolverDnCgesvd(void* h, signed char jobu, signed char jobvt, int m,
                                          int n, Single* a, int lda, float* s, Single* u, int ldu,
                                          Single* vt, int ldvt, Single*, int, float*, int* info) {
  return api::gesvd(h, static_cast<char>(jobu), static_cast<char>(jobvt), m, n, a, lda, s, u, ldu,
                    vt, ldvt, info);
}
SOFTGPU_API SolverStatus cusolverDnZgesvd(void* h, signed char jobu, signed char jobvt, int m,
                                          int n, Double* a, int lda, double* s, Double* u, int ldu,
                                          Double* vt, int ldvt, Double*, int, double*, int* info) {
  return api::gesvd(h, static_cast<char>(jobu), static_cast<char>(jobvt), m, n, a, lda, s, u, ldu,
                    vt, ldvt, info);
}

SOFTGPU_API SolverStatus cusolverDnSgesvdj_bufferSize(void* h, Vectors, int, int m, int n,
                                                      const float*, int, const float*, const float*,
                                                      int, const float*, int, int* room, void*) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnDgesvdj_bufferSize(void* h, Vectors, int, int m, int n,
                                                      const double*, int, const double*,
                                                      const double*, int, const double*, int,
                                                      int* room, void*) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnCgesvdj_bufferSize(void* h, Vectors, int, int m, int n,
                                                      const Single*, int, const float*,
                                                      const Single*, int, const Single*, int,
                                                      int* room, void*) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnZgesvdj_bufferSize(void* h, Vectors, int, int m, int n,
                                                      const Double*, int, const double*,
                                                      const Double*, int, const Double*, int,
                                                      int* room, void*) {
  return api::scratch(h, room, m, n);
}

SOFTGPU_API SolverStatus cusolverDnSgesvdj(void* h, Vectors job, int economic, int m, int n,
                                           float* a, int lda, float* s, float* u, int ldu, float* v,
                                           int ldv, float*, int, int* info, void*) {
  return api::gesvdj_of_one(h, job, economic, m, n, a, lda, s, u, ldu, v, ldv, info);
}
SOFTGPU_API SolverStatus cusolverDnDgesvdj(void* h, Vectors job, int economic, int m, int n,
                                           double* a, int lda, double* s, double* u, int ldu,
                                           double* v, int ldv, double*, int, int* info, void*) {
  return api::gesvdj_of_one(h, job, economic, m, n, a, lda, s, u, ldu, v, ldv, info);
}
SOFTGPU_API SolverStatus cusolverDnCgesvdj(void* h, Vectors job, int economic, int m, int n,
                                           Single* a, int lda, float* s, Single* u, int ldu,
                                           Single* v, int ldv, Single*, int, int* info, void*) {
  return api::gesvdj_of_one(h, job, economic, m, n, a, lda, s, u, ldu, v, ldv, info);
}
SOFTGPU_API SolverStatus cusolverDnZgesvdj(void* h, Vectors job, int economic, int m, int n,
                                           Double* a, int lda, double* s, Double* u, int ldu,
                                           Double* v, int ldv, Double*, int, int* info, void*) {
  return api::gesvdj_of_one(h, job, economic, m, n, a, lda, s, u, ldu, v, ldv, info);
}

SOFTGPU_API SolverStatus cusolverDnSgesvdjBatched_bufferSize(void* h, Vectors, int m, int n,
                                                             const float*, int, const float*,
                                                             const float*, int, const float*, int,
                                                             int* room, void*, int count) {
  return api::scratch(h, room, m, n, count);
}
SOFTGPU_API SolverStatus cusolverDnDgesvdjBatched_bufferSize(void* h, Vectors, int m, int n,
                                                             const double*, int, const double*,
                                                             const double*, int, const double*, int,
                                                             int* room, void*, int count) {
  return api::scratch(h, room, m, n, count);
}
SOFTGPU_API SolverStatus cusolverDnCgesvdjBatched_bufferSize(void* h, Vectors, int m, int n,
                                                             const Single*, int, const float*,
                                                             const Single*, int, const Single*, int,
                                                             int* room, void*, int count) {
  return api::scratch(h, room, m, n, count);
}
SOFTGPU_API SolverStatus cusolverDnZgesvdjBatched_bufferSize(void* h, Vectors, int m, int n,
                                                             const Double*, int, const double*,
                                                             const Double*, int, const Double*, int,
                                                             int* room, void*, int count) {
  return api::scratch(h, room, m, n, count);
}

SOFTGPU_API SolverStatus cusolverDnSgesvdjBatched(void* h, Vectors job, int m, int n, float* a,
                                                  int lda, float* s, float* u, int ldu, float* v,
                                                  int ldv, float*, int, int* infos, void*,
                                                  int count) {
  return api::gesvdj_batched(h, job, m, n, a, lda, s, u, ldu, v, ldv, infos, count);
}
SOFTGPU_API SolverStatus cusolverDnDgesvdjBatched(void* h, Vectors job, int m, int n, double* a,
                                                  int lda, double* s, double* u, int ldu, double* v,
                                                  int ldv, double*, int, int* infos, void*,
                                                  int count) {
  return api::gesvdj_batched(h, job, m, n, a, lda, s, u, ldu, v, ldv, infos, count);
}
SOFTGPU_API SolverStatus cusolverDnCgesvdjBatched(void* h, Vectors job, int m, int n, Single* a,
                                                  int lda, float* s, Single* u, int ldu, Single* v,
                                                  int ldv, Single*, int, int* infos, void*,
                                                  int count) {
  return api::gesvdj_batched(h, job, m, n, a, lda, s, u, ldu, v, ldv, infos, count);
}
SOFTGPU_API SolverStatus cusolverDnZgesvdjBatched(void* h, Vectors job, int m, int n, Double* a,
                                                  int lda, double* s, Double* u, int ldu, Double* v,
                                                  int ldv, Double*, int, int* infos, void*,
                                                  int count) {
  return api::gesvdj_batched(h, job, m, n, a, lda, s, u, ldu, v, ldv, infos, count);
}

SOFTGPU_API SolverStatus cusolverDnSgesvdaStridedBatched_bufferSize(
    void* h, Vectors, int rank, int m, int n, const float*, int, long long, const float*, long long,
    const float*, int, long long, const float*, int, long long, int* room, int count) {
  return api::scratch(h, room, rank, m, n, count);
}
SOFTGPU_API SolverStatus cusolverDnDgesvdaStridedBatched_bufferSize(
    void* h, Vectors, int rank, int m, int n, const double*, int, long long, const double*,
    long long, const double*, int, long long, const double*, int, long long, int* room, int count) {
  return api::scratch(h, room, rank, m, n, count);
}
SOFTGPU_API SolverStatus cusolverDnCgesvdaStridedBatched_bufferSize(
    void* h, Vectors, int rank, int m, int n, const Single*, int, long long, const float*,
    long long, const Single*, int, long long, const Single*, int, long long, int* room, int count) {
  return api::scratch(h, room, rank, m, n, count);
}
SOFTGPU_API SolverStatus cusolverDnZgesvdaStridedBatched_bufferSize(
    void* h, Vectors, int rank, int m, int n, const Double*, int, long long, const double*,
    long long, const Double*, int, long long, const Double*, int, long long, int* room, int count) {
  return api::scratch(h, room, rank, m, n, count);
}

SOFTGPU_API SolverStatus cusolverDnSgesvdaStridedBatched(
    void* h, Vectors job, int rank, int m, int n, const float* a, int lda, long long stride_a,
    float* s, long long stride_s, float* u, int ldu, long long stride_u, float* v, int ldv,
    long long stride_v, float*, int, int* infos, double* residuals, int count) {
  return api::gesvda(
      h, rank,
      api::Batch<float>{job, m, n, const_cast<float*>(a), lda, stride_a, s, stride_s, u, ldu,
                        stride_u, v, ldv, stride_v, infos, count, rank, rank},
      residuals);
}
SOFTGPU_API SolverStatus cusolverDnDgesvdaStridedBatched(
    void* h, Vectors job, int rank, int m, int n, const double* a, int lda, long long stride_a,
    double* s, long long stride_s, double* u, int ldu, long long stride_u, double* v, int ldv,
    long long stride_v, double*, int, int* infos, double* residuals, int count) {
  return api::gesvda(
      h, rank,
      api::Batch<double>{job, m, n, const_cast<double*>(a), lda, stride_a, s, stride_s, u, ldu,
                         stride_u, v, ldv, stride_v, infos, count, rank, rank},
      residuals);
}
SOFTGPU_API SolverStatus cusolverDnCgesvdaStridedBatched(
    void* h, Vectors job, int rank, int m, int n, const Single* a, int lda, long long stride_a,
    float* s, long long stride_s, Single* u, int ldu, long long stride_u, Single* v, int ldv,
    long long stride_v, Single*, int, int* infos, double* residuals, int count) {
  return api::gesvda(
      h, rank,
      api::Batch<Single>{job, m, n, const_cast<Single*>(a), lda, stride_a, s, stride_s, u, ldu,
                         stride_u, v, ldv, stride_v, infos, count, rank, rank},
      residuals);
}
SOFTGPU_API SolverStatus cusolverDnZgesvdaStridedBatched(
    void* h, Vectors job, int rank, int m, int n, const Double* a, int lda, long long stride_a,
    double* s, long long stride_s, Double* u, int ldu, long long stride_u, Double* v, int ldv,
    long long stride_v, Double*, int, int* infos, double* residuals, int count) {
  return api::gesvda(
      h, rank,
      api::Batch<Double>{job, m, n, const_cast<Double*>(a), lda, stride_a, s, stride_s, u, ldu,
                         stride_u, v, ldv, stride_v, infos, count, rank, rank},
      residuals);
}
