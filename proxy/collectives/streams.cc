// libpyft_collectives.so: flexccl on the streams and the memory of a soft GPU, or on those of a
// real one by way of host memory (staged.cc). The server opens it; `pyft run --direct` preloads it,
// and then it finds libsoftgpu.so by itself.
#include <dlfcn.h>
#include <flexccl.h>

#include <atomic>

#include "collectives/holds.h"
#include "collectives/threads.h"

extern "C" FLEXCCL_API int pyft_collectives_use(void* handle);
extern "C" FLEXCCL_API int pyft_collectives_use_driver(void* handle);
extern "C" FLEXCCL_API unsigned long long pyft_collectives_waiting();

namespace {

using Suspend = int (*)(void* stream, void (*function)(void*), void* data);
using Resume = void (*)(void* data);
using Allocate = int (*)(void** address, size_t bytes);
using Free = int (*)(void* address);
using GetDevice = int (*)(int* device);
using SetDevice = int (*)(int device);

struct SoftGpu {
  Suspend suspend = nullptr;
  Resume resume = nullptr;
  Allocate allocate = nullptr;
  Free free = nullptr;
  GetDevice get_device = nullptr;
  SetDevice set_device = nullptr;
};
SoftGpu gpu;

std::atomic<unsigned long long> waiting_now{0};

struct Waiting {
  void (*run)(void*);
  void* arg;
};

// The stream stands still while a thread runs the operation, which may wait for other ranks; the
// device goes on with other streams.
void carry_out(void* data) {
  auto* waiting = static_cast<Waiting*>(data);
  waiting->run(waiting->arg);
  --waiting_now;
  gpu.resume(waiting);
  delete waiting;
}

void reached(void* data) {
  ++waiting_now;
  pyft::collectives::run_in_thread(carry_out, data);
}

int current_device() {
  int device = 0;
  return gpu.get_device(&device) == 0 ? device : 0;
}

// A group's operations are enqueued together at its end, whatever device is current then.
int enqueue(int device, cudaStream_t stream, void (*run)(void*), void* arg) {
  const int current = current_device();
  if (current != device) gpu.set_device(device);
  auto* waiting = new Waiting{run, arg};
  const int code = gpu.suspend(stream, reached, waiting);
  if (code) delete waiting;
  if (current != device) gpu.set_device(current);
  return code;
}

// On a real GPU a server has one device: the current one.
int driver_device() {
  CUdevice device = 0;
  return pyft::collectives::driver().current_device(&device) == CUDA_SUCCESS ? device : 0;
}

int enqueue_held(int, cudaStream_t stream, void (*run)(void*), void* arg) {
  return pyft::collectives::hold(stream, run, arg);
}

bool find(void* handle) {
  gpu.suspend = reinterpret_cast<Suspend>(dlsym(handle, "softgpu_suspend"));
  gpu.resume = reinterpret_cast<Resume>(dlsym(handle, "softgpu_resume"));
  gpu.allocate = reinterpret_cast<Allocate>(dlsym(handle, "cudaMalloc"));
  gpu.free = reinterpret_cast<Free>(dlsym(handle, "cudaFree"));
  gpu.get_device = reinterpret_cast<GetDevice>(dlsym(handle, "cudaGetDevice"));
  gpu.set_device = reinterpret_cast<SetDevice>(dlsym(handle, "cudaSetDevice"));
  return gpu.get_device && gpu.set_device && gpu.suspend && gpu.resume && gpu.allocate && gpu.free;
}

// Preloaded beside a soft GPU: nothing calls pyft_collectives_use.
__attribute__((constructor)) void look_for_a_preloaded_soft_gpu() {
  if (dlsym(RTLD_DEFAULT, "softgpu_suspend")) pyft_collectives_use(RTLD_DEFAULT);
}

}  // namespace

extern "C" {

// `handle`: libsoftgpu.so, from dlopen. Communicators made from now on work in its streams. 1 when
// it is no soft GPU.
FLEXCCL_API int pyft_collectives_use(void* handle) {
  if (!find(handle)) return 1;
  const flexcclStreamTable table{enqueue, current_device};
  return flexcclSetStreamTable(&table) == ncclSuccess ? 0 : 1;
}

// The same with the driver of a real GPU: libcuda.so.1, from dlopen. Collectives of device memory
// are those with the prefix pyft_staged_.
FLEXCCL_API int pyft_collectives_use_driver(void* handle) {
  if (!pyft::collectives::use_driver(handle)) return 1;
  const flexcclStreamTable table{enqueue_held, driver_device};
  return flexcclSetStreamTable(&table) == ncclSuccess ? 0 : 1;
}

// How many operations are under way, and so may wait for other ranks.
FLEXCCL_API unsigned long long pyft_collectives_waiting() {
  return waiting_now.load() + pyft::collectives::held_now();
}

// Device memory instead of the host memory flexccl gives.
FLEXCCL_API ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  return gpu.allocate && gpu.allocate(ptr, size) == 0 ? ncclSuccess : ncclUnhandledCudaError;
}

FLEXCCL_API ncclResult_t ncclMemFree(void* ptr) {
  return gpu.free && gpu.free(ptr) == 0 ? ncclSuccess : ncclUnhandledCudaError;
}

}  // extern "C"
