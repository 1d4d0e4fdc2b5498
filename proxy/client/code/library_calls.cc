// The runtime's names for the driver's libraries of kernels, and libraries in files.
#include <fstream>
#include <iterator>
#include <vector>

#include "client/code/module.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

cudaError_t result(CUresult code) {
  return done(static_cast<cudaError_t>(code));
}

CUlibrary driver(cudaLibrary_t library) {
  return reinterpret_cast<CUlibrary>(library);
}

// A module keeps what it was made of.
CUresult load_file(CUlibrary* library, const char* name) {
  if (!library || !name) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(name, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::vector<char> code((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  code.push_back('\0');  // PTX is text that ends so
  return cuLibraryLoadData(library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
}

}  // namespace

PYFT_API CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName,
                                        CUjit_option* jitOptions, void** jitOptionsValues,
                                        unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                                        void** libraryOptionValues,
                                        unsigned int numLibraryOptions) {
  const Entered entered(Api::cuLibraryLoadFromFile);
  return load_file(library, fileName);
}

PYFT_API cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* fileName,
                                             enum cudaJitOption* jitOptions,
                                             void** jitOptionsValues, unsigned int numJitOptions,
                                             enum cudaLibraryOption* libraryOptions,
                                             void** libraryOptionValues,
                                             unsigned int numLibraryOptions) {
  const Entered entered(Api::cudaLibraryLoadFromFile);
  return result(load_file(reinterpret_cast<CUlibrary*>(library), fileName));
}

PYFT_API cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code,
                                         enum cudaJitOption* jitOptions, void** jitOptionsValues,
                                         unsigned int numJitOptions,
                                         enum cudaLibraryOption* libraryOptions,
                                         void** libraryOptionValues,
                                         unsigned int numLibraryOptions) {
  const Entered entered(Api::cudaLibraryLoadData);
  return result(cuLibraryLoadData(reinterpret_cast<CUlibrary*>(library), code, nullptr, nullptr, 0,
                                  nullptr, nullptr, 0));
}

PYFT_API cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  const Entered entered(Api::cudaLibraryUnload);
  return result(cuLibraryUnload(driver(library)));
}

PYFT_API cudaError_t cudaLibraryGetKernel(cudaKernel_t* pKernel, cudaLibrary_t library,
                                          const char* name) {
  const Entered entered(Api::cudaLibraryGetKernel);
  return result(cuLibraryGetKernel(reinterpret_cast<CUkernel*>(pKernel), driver(library), name));
}

PYFT_API cudaError_t cudaLibraryGetGlobal(void** dptr, size_t* bytes, cudaLibrary_t library,
                                          const char* name) {
  const Entered entered(Api::cudaLibraryGetGlobal);
  CUdeviceptr address = 0;
  const CUresult code = cuLibraryGetGlobal(&address, bytes, driver(library), name);
  if (code == CUDA_SUCCESS && dptr) *dptr = reinterpret_cast<void*>(address);
  return result(code);
}

PYFT_API cudaError_t cudaLibraryGetKernelCount(unsigned int* count, cudaLibrary_t lib) {
  const Entered entered(Api::cudaLibraryGetKernelCount);
  return result(cuLibraryGetKernelCount(count, driver(lib)));
}

PYFT_API cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned int numKernels,
                                                 cudaLibrary_t lib) {
  const Entered entered(Api::cudaLibraryEnumerateKernels);
  return result(
      cuLibraryEnumerateKernels(reinterpret_cast<CUkernel*>(kernels), numKernels, driver(lib)));
}

PYFT_API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                     enum cudaFuncAttribute attr, int value,
                                                     int device) {
  const Entered entered(Api::cudaKernelSetAttributeForDevice);
  return result(cuKernelSetAttribute(static_cast<CUfunction_attribute>(attr), value,
                                     reinterpret_cast<CUkernel>(kernel), device));
}
