#include "client/device/callback.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  const Entered entered(Api::cudaLaunchHostFunc);
  return done(launch_host_function(stream, fn, userData));
}

PYFT_API CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  const Entered entered(Api::cuLaunchHostFunc);
  return static_cast<CUresult>(launch_host_function(hStream, fn, userData));
}

PYFT_API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                           void* userData, unsigned int flags) {
  const Entered entered(Api::cudaStreamAddCallback);
  if (!callback || flags) return done(cudaErrorInvalidValue);
  return done(
      add_callback(stream, [=](cudaError_t status) { callback(stream, status, userData); }));
}

PYFT_API CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                      unsigned int flags) {
  const Entered entered(Api::cuStreamAddCallback);
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(add_callback(hStream, [=](cudaError_t status) {
    callback(hStream, static_cast<CUresult>(status), userData);
  }));
}
