// Code on the device: where it lies, what it costs to begin, how it fails, how it is captured.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "driver.h"

namespace measure {

// Addresses of a variable and of a function, for the caller to compare over processes.
void modules(const std::string&) {
  open_device();
  const CUmodule module = load_kernels();
  CUdeviceptr variable = 0, pointer = 0;
  size_t bytes = 0;
  check(DRIVER(cuModuleGetGlobal)(&variable, &bytes, module, "counter"), "cuModuleGetGlobal");
  check(DRIVER(cuMemAlloc)(&pointer, 8), "cuMemAlloc");
  void* parameters[] = {&pointer};
  check(DRIVER(cuLaunchKernel)(kernel(module, "code_address"), 1, 1, 1, 1, 1, 1, 0, nullptr,
                               parameters, nullptr),
        "cuLaunchKernel");
  uint64_t code = 0;
  check(DRIVER(cuMemcpyDtoH)(&code, pointer, 8), "cuMemcpyDtoH");
  std::printf("address variable 0x%llx\naddress code 0x%llx\n", variable,
              static_cast<unsigned long long>(code));
}

// What a new server spends before it can restore anything. The argument is libcublas.
void phases(const std::string& argument) {
  double began = now_us();
  const auto lap = [&](const char* name) {
    figure(name, (now_us() - began) / 1e3, "ms");
    began = now_us();
  };
  CUdevice device = 0;
  CUcontext context = nullptr;
  DRIVER(cuInit);
  lap("dlopen_driver");
  check(DRIVER(cuInit)(0), "cuInit");
  check(DRIVER(cuDeviceGet)(&device, 0), "cuDeviceGet");
  lap("cuInit");
  check(DRIVER(cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
  check(DRIVER(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  lap("context");
  void* const blas = dlopen(argument.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!blas) skip(dlerror());
  lap("dlopen_cublas");
  using Create = int (*)(void**);
  using Gemm = int (*)(void*, int, int, int, int, int, const float*, const float*, int,
                       const float*, int, const float*, float*, int);
  const auto create = reinterpret_cast<Create>(dlsym(blas, "cublasCreate_v2"));
  const auto gemm = reinterpret_cast<Gemm>(dlsym(blas, "cublasSgemm_v2"));
  void* handle = nullptr;
  if (!create || !gemm || create(&handle)) fail("[cublasCreate_v2] does not work");
  lap("cublas_handle");
  constexpr int kSide = 256;
  CUdeviceptr memory = 0;
  check(DRIVER(cuMemAlloc)(&memory, kSide * kSide * sizeof(float)), "cuMemAlloc");
  check(DRIVER(cuMemsetD8)(memory, 0, kSide * kSide * sizeof(float)), "cuMemsetD8");
  auto* const matrix = reinterpret_cast<float*>(memory);
  const float one = 1, zero = 0;
  if (gemm(handle, 0, 0, kSide, kSide, kSide, &one, matrix, kSide, matrix, kSide, &zero, matrix,
           kSide))
    fail("[cublasSgemm_v2] does not work");
  check(DRIVER(cuCtxSynchronize)(), "cuCtxSynchronize");
  lap("first_gemm");
}

// The argument is the kernel that fails. Prints the code that the context has from then on.
void faults(const std::string& argument) {
  open_device();
  const CUfunction bad = kernel(load_kernels(), argument.c_str());
  check(DRIVER(cuLaunchKernel)(bad, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
        "cuLaunchKernel");
  const double began = now_us();
  const CUresult code = DRIVER(cuCtxSynchronize)();
  figure("code", static_cast<double>(code), "");
  figure("noticed", now_us() - began, "us");
  if (code == CUDA_SUCCESS) fail("a kernel that must fail has not failed");
  CUdeviceptr memory = 0;
  if (DRIVER(cuMemAlloc)(&memory, 8) == CUDA_SUCCESS)
    fail("the context still gives memory after a failed kernel");
}

namespace {

// Captures an empty graph while another thread asks for an event; says whether that went well.
bool captured_beside(CUstreamCaptureMode mode, bool relaxed) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUcontext context = nullptr;
  check(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(DRIVER(cuEventCreate)(&event, 0), "cuEventCreate");
  check(DRIVER(cuEventRecord)(event, nullptr), "cuEventRecord");
  check(DRIVER(cuCtxSynchronize)(), "cuCtxSynchronize");
  check(DRIVER(cuCtxGetCurrent)(&context), "cuCtxGetCurrent");
  check(DRIVER(cuStreamBeginCapture)(stream, mode), "cuStreamBeginCapture");
  std::thread([&] {
    DRIVER(cuCtxSetCurrent)(context);
    CUstreamCaptureMode mine = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (relaxed) DRIVER(cuThreadExchangeStreamCaptureMode)(&mine);
    for (int i = 0; i < 100; ++i) DRIVER(cuEventQuery)(event);
  }).join();
  CUgraph graph = nullptr;
  const CUresult code = DRIVER(cuStreamEndCapture)(stream, &graph);
  if (graph) DRIVER(cuGraphDestroy)(graph);
  DRIVER(cuEventDestroy)(event);
  DRIVER(cuStreamDestroy)(stream);
  return code == CUDA_SUCCESS && graph;
}

}  // namespace

// The threads of a server look at events while the program captures (ARCHITECTURE.md).
void capture(const std::string&) {
  open_device();
  const auto figure_of = [](const char* name, bool works) { figure(name, works, "works"); };
  figure_of("global_beside_strict", captured_beside(CU_STREAM_CAPTURE_MODE_GLOBAL, false));
  const bool relaxed = captured_beside(CU_STREAM_CAPTURE_MODE_GLOBAL, true);
  figure_of("global_beside_relaxed", relaxed);
  if (!relaxed) fail("a thread in relaxed mode that looks at an event breaks another's capture");
}

}  // namespace measure
