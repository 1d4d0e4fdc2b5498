// cuBLAS handles. Their state (stream, workspace, modes) is the client's and travels in every
// command.
#ifndef PYFT_CLIENT_BLAS_BLAS_H_
#define PYFT_CLIENT_BLAS_BLAS_H_

#include "client/device/stream.h"

namespace pyft::client {

struct BlasHandle {
  static constexpr uint32_t kMagic = 0x42544650;
  explicit BlasHandle(Device& device) : device(device) {}
  uint32_t magic = kMagic;
  Device& device;
  BlasState state;
};

BlasHandle* blas_handle(const void* handle);  // nullptr: not one of ours
// Result of a ring operation as cuBLAS says it.
cublasStatus_t blas_status(cudaError_t error);

size_t compute_scalar_bytes(cublasComputeType_t type);  // of alpha and beta
size_t type_bytes(cudaDataType type);
Scalar blas_scalar(const BlasHandle& blas, const void* value, size_t bytes);

// The state as a command carries it: with the calling thread's own stream if it names that.
BlasState wire_state(const BlasHandle& blas);

cublasStatus_t blas_send(BlasHandle& blas, uint16_t call, const void* body, size_t bytes);
// Waits for what the library says at the call, not for the work: the code, and `info`, 0 or the
// negative number of a wrong argument.
cublasStatus_t blas_ask(BlasHandle& blas, uint16_t call, const void* body, size_t bytes, int* info);
// In host pointer mode waits for the value and stores it in *result.
cublasStatus_t blas_send_result(BlasHandle& blas, uint16_t call, const void* body, size_t bytes,
                                void* result, size_t result_bytes);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_BLAS_BLAS_H_
