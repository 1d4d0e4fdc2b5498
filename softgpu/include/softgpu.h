// What the soft GPU offers beside the vendor's interfaces. The rest of its public interface are the
// vendor symbols themselves, in cuda.h, cuda_runtime_api.h, cublas_v2.h and cublasLt.h.
#ifndef SOFTGPU_SOFTGPU_H_
#define SOFTGPU_SOFTGPU_H_

#ifdef __cplusplus
extern "C" {
#endif

// Ends a device for this process as a fault of its work would: what is queued is dropped and every
// later call returns `cuda_error` (700 illegal address, 702 timeout, 710 assert, 715 illegal
// instruction, 716 misaligned address, 719 launch failure). Returns 0, or 1 for another number or a
// device that is not there. Takes effect when the running work has finished.
int softgpu_fail(int device, int cuda_error);

// Warp instructions that a device has executed in this process.
unsigned long long softgpu_warp_instructions(int device);

#ifdef __cplusplus
}
#endif

#endif  // SOFTGPU_SOFTGPU_H_
