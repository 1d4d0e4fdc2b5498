// cuSOLVER on the host's LAPACK: handles, and work on their streams. Its header is not needed: the
// types that its functions take are pointers, integers and enumerations of cuBLAS.
#ifndef SOFTGPU_API_SOLVER_SOLVER_H_
#define SOFTGPU_API_SOLVER_SOLVER_H_

#include <climits>
#include <cmath>
#include <functional>
#include <vector>

#include "api/blas/blas.h"
#include "api/lapack.h"
#include "api/support.h"

namespace softgpu::api {

// The codes of cusolverStatus_t that are returned; cusparseStatus_t has the same numbers.
enum SolverStatus : int {
  kSolverSuccess = 0,
  kSolverNotInitialized = 1,
  kSolverInvalidValue = 3,
  kSolverExecutionFailed = 6,
  kSolverNotSupported = 9,
};

// cusolverEigMode_t.
enum class Vectors : int { kNone = 0, kWanted = 1 };

// Whether `handle` is one of cusolverDnCreate.
bool is_solver(const void* handle);

// Elements in device memory that a call touches: `rows` at the begin of each of `columns` pieces.
struct Touched {
  const char* what;
  uint64_t address, row_bytes, columns, column_bytes;
  bool written;
};
template <class T>
Touched touched(const char* what, const T* data, int64_t rows, int64_t columns, int64_t ld,
                bool written) {
  return {what,
          number(data),
          static_cast<uint64_t>(rows) * sizeof(T),
          rows ? static_cast<uint64_t>(columns) : 0,
          static_cast<uint64_t>(ld) * sizeof(T),
          written};
}
template <class T>
Touched reads(const char* what, const T* data, int64_t rows, int64_t columns = 1, int64_t ld = 0) {
  return touched(what, data, rows, columns, ld, false);
}
template <class T>
Touched writes(const char* what, const T* data, int64_t rows, int64_t columns = 1, int64_t ld = 0) {
  return touched(what, data, rows, columns, ld, true);
}
// The fault if some of it is not mapped; otherwise what will be written is announced.
Fault claim(const std::vector<Touched>& all);

// Puts work on the handle's stream.
SolverStatus on_solver_stream(const void* handle, std::function<Fault()> run);
// The same for work whose memory is known now.
SolverStatus solve_on_stream(const void* handle, std::vector<Touched> all,
                             std::function<void()> run);

// Waits for the handle's stream; false if that is impossible.
bool finish_solver(const void* handle);

// LAPACK counts in 32 bits. `ld` is the distance of columns with so many rows.
inline bool is_size(int64_t n) {
  return n >= 0 && n <= INT_MAX;
}
inline bool is_distance(int64_t ld, int64_t rows) {
  return ld >= std::max<int64_t>(rows, 1) && ld <= INT_MAX;
}

// No call needs scratch memory on the device. A program must get some all the same: it may take no
// bytes for a failure.
template <class... Sizes>
SolverStatus scratch(const void* handle, int* elements, Sizes... sizes) {
  if (!is_solver(handle)) return kSolverNotInitialized;
  if (!elements || !(is_size(sizes) && ...)) return kSolverInvalidValue;
  *elements = 16;
  return kSolverSuccess;
}
template <class... Sizes>
SolverStatus scratch(const void* handle, size_t* device, size_t* host, Sizes... sizes) {
  if (!is_solver(handle)) return kSolverNotInitialized;
  if (!device || !host || !(is_size(sizes) && ...)) return kSolverInvalidValue;
  *device = 16;
  *host = 0;  // a program would take pinned memory, which kernels could get to see
  return kSolverSuccess;
}

inline char letter(cublasFillMode_t uplo) {
  return uplo == CUBLAS_FILL_MODE_UPPER ? 'U' : 'L';
}
// Of op(A); LAPACK's routines for real elements know no conjugate in some places.
template <class T>
char letter(cublasOperation_t op) {
  return op == CUBLAS_OP_N ? 'N' : op == CUBLAS_OP_C && kComplex<T> ? 'C' : 'T';
}

// Calls use() with a null pointer of the type.
template <class Use>
SolverStatus by_type(cudaDataType type, Use use) {
  switch (type) {
    case CUDA_R_32F:
      return use(static_cast<float*>(nullptr));
    case CUDA_R_64F:
      return use(static_cast<double*>(nullptr));
    case CUDA_C_32F:
      return use(static_cast<Single*>(nullptr));
    case CUDA_C_64F:
      return use(static_cast<Double*>(nullptr));
    default:
      return kSolverNotSupported;
  }
}

// Calls LAPACK twice: for the size of its scratch memory, then to do the work.
template <class T, class Call>
int with_scratch(Call call) {
  T size{};
  if (const int bad = call(&size, -1)) return bad;
  // A float is rounded, maybe downwards.
  const auto room = static_cast<int64_t>(std::real(size) * (sizeof(Real<T>) == 4 ? 1.0001 : 1)) + 1;
  std::vector<T> work(static_cast<size_t>(room));
  return call(work.data(), static_cast<int>(std::min<int64_t>(room, INT_MAX)));
}

// Iterations on values that are no numbers may never end.
template <class T>
bool all_finite(const T* a, int64_t rows, int64_t columns, int64_t ld) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i)
      if (!std::isfinite(std::abs(a[i + j * ld]))) return false;
  return true;
}

}  // namespace softgpu::api

// For definitions of exported functions, which stand outside of namespaces.
using softgpu::api::Double;
using softgpu::api::Single;
using softgpu::api::SolverStatus;
using softgpu::api::Vectors;

#endif  // SOFTGPU_API_SOLVER_SOLVER_H_
