// Handles of cuSOLVER, and those of cuSPARSE that PyTorch makes beside them.
#include <cstdio>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "api/solver/solver.h"
#include "fault/written.h"
#include "graph/capture.h"
#include "memory/pointers.h"

namespace softgpu::api {
namespace {

enum class Kind { kSolver, kParameters, kSyevj, kGesvdj, kSparse };

struct Object {
  Kind kind;
  int device;
  cudaStream_t stream = nullptr;
};

struct Objects {
  std::mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<Object>> all;
};

Objects& objects() {
  static Objects* all = std::make_unique<Objects>().release();
  return *all;
}

// Calls use(Object&) with the object, which lives while that runs.
template <class Use>
SolverStatus with_object(const void* handle, Kind kind, Use use) {
  std::lock_guard lock(objects().mutex);
  const auto it = objects().all.find(handle);
  if (it == objects().all.end() || it->second->kind != kind) return kSolverNotInitialized;
  use(*it->second);
  return kSolverSuccess;
}

SolverStatus create(Kind kind, void** out) {
  if (!out) return kSolverInvalidValue;
  if (usable() != cudaSuccess) return kSolverNotInitialized;
  auto object = std::make_unique<Object>(Object{kind, current_device().index()});
  *out = object.get();
  std::lock_guard lock(objects().mutex);
  objects().all[*out] = std::move(object);
  return kSolverSuccess;
}

SolverStatus destroy(Kind kind, const void* handle) {
  const SolverStatus found = with_object(handle, kind, [](Object&) {});
  if (found != kSolverSuccess) return found;
  std::lock_guard lock(objects().mutex);
  objects().all.erase(handle);
  return kSolverSuccess;
}

SolverStatus set_stream(Kind kind, const void* handle, cudaStream_t stream) {
  return with_object(handle, kind, [=](Object& object) { object.stream = stream; });
}

// Settings of iterations, which LAPACK does in its own way.
SolverStatus accept(const void* info) {
  return with_object(info, Kind::kGesvdj, [](Object&) {});
}

SolverStatus solver_status(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS           ? kSolverSuccess
         : status == CUBLAS_STATUS_NOT_INITIALIZED ? kSolverNotInitialized
         : status == CUBLAS_STATUS_INVALID_VALUE   ? kSolverInvalidValue
                                                   : kSolverExecutionFailed;
}

}  // namespace

bool is_solver(const void* handle) {
  return with_object(handle, Kind::kSolver, [](Object&) {}) == kSolverSuccess;
}

Fault claim(const std::vector<Touched>& all) {
  for (const Touched& t : all) {
    const uint64_t bytes = t.columns ? (t.columns - 1) * t.column_bytes + t.row_bytes : 0;
    if (pointers().covers(t.address, bytes)) continue;
    char text[96];
    std::snprintf(text, sizeof text, "%s at [0x%llx] of a solver call is not mapped", t.what,
                  static_cast<unsigned long long>(t.address));
    return {FaultKind::kIllegalAddress, text};
  }
  for (const Touched& t : all)
    if (t.written && t.columns) about_to_write(t.address, t.row_bytes, t.columns, t.column_bytes);
  return {};
}

SolverStatus on_solver_stream(const void* handle, std::function<Fault()> run) {
  Object own{};
  const SolverStatus found = with_object(handle, Kind::kSolver, [&](Object& o) { own = o; });
  if (found != kSolverSuccess) return found;
  return solver_status(enqueue_host_blas("cusolver", own.device, own.stream, std::move(run)));
}

SolverStatus solve_on_stream(const void* handle, std::vector<Touched> all,
                             std::function<void()> run) {
  return on_solver_stream(handle, [all = std::move(all), run = std::move(run)]() -> Fault {
    if (Fault bad = claim(all)) return bad;
    run();
    return {};
  });
}

bool finish_solver(const void* handle) {
  Object own{};
  with_object(handle, Kind::kSolver, [&](Object& o) { own = o; });
  const bool legacy = reinterpret_cast<uintptr_t>(own.stream) <= 1;
  const auto stream = legacy ? device(own.device).legacy_stream() : find_stream(own.stream);
  if (!stream || check_stream_wait(*stream) != cudaSuccess) return false;
  Device& d = device(stream->device);
  d.scheduler().wait_stream(*stream);
  return d.sticky() == cudaSuccess;
}

}  // namespace softgpu::api

namespace api = softgpu::api;
using api::Kind;

SOFTGPU_API SolverStatus cusolverDnCreate(void** out) {
  return api::create(Kind::kSolver, out);
}
SOFTGPU_API SolverStatus cusolverDnDestroy(void* handle) {
  return api::destroy(Kind::kSolver, handle);
}
SOFTGPU_API SolverStatus cusolverDnSetStream(void* handle, cudaStream_t stream) {
  return api::set_stream(Kind::kSolver, handle, stream);
}

SOFTGPU_API SolverStatus cusolverDnCreateParams(void** out) {
  return api::create(Kind::kParameters, out);
}
SOFTGPU_API SolverStatus cusolverDnDestroyParams(void* parameters) {
  return api::destroy(Kind::kParameters, parameters);
}

SOFTGPU_API SolverStatus cusolverDnCreateSyevjInfo(void** out) {
  return api::create(Kind::kSyevj, out);
}
SOFTGPU_API SolverStatus cusolverDnDestroySyevjInfo(void* info) {
  return api::destroy(Kind::kSyevj, info);
}

SOFTGPU_API SolverStatus cusolverDnCreateGesvdjInfo(void** out) {
  return api::create(Kind::kGesvdj, out);
}
SOFTGPU_API SolverStatus cusolverDnDestroyGesvdjInfo(void* info) {
  return api::destroy(Kind::kGesvdj, info);
}
SOFTGPU_API SolverStatus cusolverDnXgesvdjSetMaxSweeps(void* info, int) {
  return api::accept(info);
}
SOFTGPU_API SolverStatus cusolverDnXgesvdjSetSortEig(void* info, int) {
  return api::accept(info);
}
SOFTGPU_API SolverStatus cusolverDnXgesvdjSetTolerance(void* info, double) {
  return api::accept(info);
}

SOFTGPU_API SolverStatus cusparseCreate(void** out) {
  return api::create(Kind::kSparse, out);
}
SOFTGPU_API SolverStatus cusparseDestroy(void* handle) {
  return api::destroy(Kind::kSparse, handle);
}
SOFTGPU_API SolverStatus cusparseSetStream(void* handle, cudaStream_t stream) {
  return api::set_stream(Kind::kSparse, handle, stream);
}
