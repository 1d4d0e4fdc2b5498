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

// Nanoseconds that a device has spent in kernels in this process, launch cost included.
unsigned long long softgpu_kernel_time_ns(int device);

// Appends function(data) to a stream (a CUstream or cudaStream_t, 0, 1 and 2 included). Unlike a
// host function it runs on the thread that executes the device's work, without a thread switch: it
// must not block and must not call any function of this library. Like a host function it never runs
// if the device fails before. Returns a CUresult.
int softgpu_publish(void* stream, void (*function)(void*), void* data);

// Like softgpu_publish, and the stream then stands still until softgpu_resume(data) has been called
// with the same data, from any thread and once; other streams go on. For work that is done outside
// the device in stream order and may wait for other processes. If the device fails first, function
// never runs and softgpu_resume must not be called. Returns a CUresult.
int softgpu_suspend(void* stream, void (*function)(void*), void* data);
void softgpu_resume(void* data);

// Executes the next ready work of a device in the calling thread, so that a thread which submits
// and would then sleep saves two thread switches. Returns 1 if it executed something; 0 if nothing
// is ready, or another thread executes some. From its first call on the thread is lent to the
// device: what it submits may stay undone until it calls this again or waits for the device, so it
// calls this until 0 before it sleeps. Results are the same bits whoever executes the work.
int softgpu_work(int device);

#ifdef __cplusplus
}
#endif

#endif  // SOFTGPU_SOFTGPU_H_
