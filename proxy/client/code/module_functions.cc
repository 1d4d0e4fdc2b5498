// The kernels a module has, asked for by programs that load it without knowing their names.
#include "api/commands.h"
#include "client/code/module.h"

namespace pyft::client {
namespace {

cudaError_t ask(Device& device, uint64_t module, uint32_t index, uint32_t from, Reply* reply) {
  const cmd::cuModuleEnumerateFunctions body{module, index, from};
  const cudaError_t error =
      device.call(static_cast<uint16_t>(Call::cuModuleEnumerateFunctions), bytes_of(body), reply);
  return error != cudaSuccess ? error : static_cast<cudaError_t>(reply->code);
}

// A name may be longer than a reply.
cudaError_t function_name(Device& device, uint64_t module, uint32_t index, std::string* name) {
  Reply reply;
  do {
    const auto from = static_cast<uint32_t>(name->size());
    if (const cudaError_t error = ask(device, module, index, from, &reply); error != cudaSuccess)
      return error;
    if (reply.data.empty()) break;
    name->append(reinterpret_cast<const char*>(reply.data.data()), reply.data.size());
  } while (name->size() < reply.values[1]);
  return cudaSuccess;
}

// The module where the calling thread works. The driver's code.
CUresult loaded(Module* module, Device** device, uint64_t* handle) {
  cudaError_t error;
  *device = attached(&error);
  if (!*device) return static_cast<CUresult>(error);
  return module ? module->load(**device, handle) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult count_functions(Module* module, unsigned* count) {
  Device* device = nullptr;
  uint64_t handle = 0;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult code = loaded(module, &device, &handle); code != CUDA_SUCCESS) return code;
  Reply reply;
  const cudaError_t error = ask(*device, handle, UINT32_MAX, 0, &reply);
  if (error == cudaSuccess) *count = static_cast<unsigned>(reply.values[0]);
  return static_cast<CUresult>(error);
}

CUresult list_functions(Module* module, void** out, unsigned count) {
  Device* device = nullptr;
  uint64_t handle = 0;
  unsigned total = 0;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult code = loaded(module, &device, &handle); code != CUDA_SUCCESS) return code;
  if (const CUresult code = count_functions(module, &total); code != CUDA_SUCCESS) return code;
  for (unsigned i = 0; i < count && i < total; ++i) {
    std::string name;
    if (const cudaError_t error = function_name(*device, handle, i, &name); error != cudaSuccess)
      return static_cast<CUresult>(error);
    out[i] = module->kernel(name);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  const Entered entered(Api::cuModuleGetFunctionCount);
  return count_functions(module_of_handle(mod), count);
}

PYFT_API CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                             CUmodule mod) {
  const Entered entered(Api::cuModuleEnumerateFunctions);
  return list_functions(module_of_handle(mod), reinterpret_cast<void**>(functions), numFunctions);
}

PYFT_API CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  const Entered entered(Api::cuLibraryGetKernelCount);
  return count_functions(module_of_handle(lib), count);
}

PYFT_API CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels,
                                            CUlibrary lib) {
  const Entered entered(Api::cuLibraryEnumerateKernels);
  return list_functions(module_of_handle(lib), reinterpret_cast<void**>(kernels), numKernels);
}
