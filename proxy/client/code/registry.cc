// What compilers make programs call before main: 445 fatbins and 21,504 functions for import torch.
// Registration only appends to vectors; the hash tables are built when something is looked up.
#include <algorithm>
#include <shared_mutex>

#include "client/code/fatbin.h"
#include "client/code/module.h"

namespace pyft::client {
namespace {

struct Function {
  const void* host;
  Module* module;
  const char* name;
};

struct Variable {
  const void* host;
  Module* module;
  const char* name;
};

// Never destroyed: unregistration runs in destructors of other libraries.
struct Registry {
  std::shared_mutex mutex;
  std::vector<Function> functions;
  std::vector<Variable> variables;
  size_t hashed_functions = 0, hashed_variables = 0;
  std::unordered_map<const void*, Kernel*> kernels;
  std::unordered_map<const void*, Variable> symbols;
};

Registry& registry() {
  static Registry* const made = new Registry;
  return *made;
}

// Precondition: exclusive lock.
void hash_pending(Registry& r) {
  for (; r.hashed_functions < r.functions.size(); ++r.hashed_functions) {
    const Function& f = r.functions[r.hashed_functions];
    r.kernels.emplace(f.host, nullptr).first->second = f.module->kernel(f.name);
  }
  for (; r.hashed_variables < r.variables.size(); ++r.hashed_variables) {
    const Variable& v = r.variables[r.hashed_variables];
    r.symbols[v.host] = v;
  }
}

// Precondition: exclusive lock. What has been looked up since has copies of its names.
template <class Entry>
void forget_pending(std::vector<Entry>& all, size_t hashed, const Module* module) {
  const auto pending = all.begin() + static_cast<std::ptrdiff_t>(hashed);
  const auto is_its = [module](const Entry& entry) { return entry.module == module; };
  all.erase(std::remove_if(pending, all.end(), is_its), all.end());
}

}  // namespace

Kernel* kernel_of_function(const void* host_function) {
  Registry& r = registry();
  {
    const std::shared_lock lock(r.mutex);
    if (r.hashed_functions == r.functions.size()) {
      const auto found = r.kernels.find(host_function);
      return found == r.kernels.end() ? nullptr : found->second;
    }
  }
  const std::unique_lock lock(r.mutex);
  hash_pending(r);
  const auto found = r.kernels.find(host_function);
  return found == r.kernels.end() ? nullptr : found->second;
}

Kernel* kernel_of_handle(const void* handle) {
  if (!handle) return nullptr;
  if (Kernel* kernel = kernel_of_function(handle)) return kernel;
  auto* kernel = static_cast<Kernel*>(const_cast<void*>(handle));
  return kernel->magic == Kernel::kMagic ? kernel : nullptr;
}

Module* module_of_handle(const void* handle) {
  auto* module = static_cast<Module*>(const_cast<void*>(handle));
  return module && module->valid() ? module : nullptr;
}

cudaError_t symbol_address(const void* symbol, Device& device, Global* out) {
  Registry& r = registry();
  Variable variable{};
  {
    const std::unique_lock lock(r.mutex);
    hash_pending(r);
    const auto found = r.symbols.find(symbol);
    if (found == r.symbols.end()) return cudaErrorInvalidSymbol;
    variable = found->second;
  }
  const CUresult error = variable.module->global(device, variable.name, out);
  return error == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : static_cast<cudaError_t>(error);
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API void** __cudaRegisterFatBinary(void* fatCubin) {
  const Entered entered(Api::__cudaRegisterFatBinary);
  return reinterpret_cast<void**>(new Module(fatCubin, false));  // until the process ends
}

PYFT_API void __cudaRegisterFatBinaryEnd(void** fatCubinHandle) {
  const Entered entered(Api::__cudaRegisterFatBinaryEnd);
}

// The device side ends with its server; at exit there is nothing left to tell it. Before that a
// library goes with its names.
PYFT_API void __cudaUnregisterFatBinary(void** fatCubinHandle) {
  const Entered entered(Api::__cudaUnregisterFatBinary);
  const auto* const module = reinterpret_cast<const Module*>(fatCubinHandle);
  Registry& r = registry();
  const std::unique_lock lock(r.mutex);
  forget_pending(r.functions, r.hashed_functions, module);
  forget_pending(r.variables, r.hashed_variables, module);
}

PYFT_API void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char* deviceFun,
                                     const char* deviceName, int thread_limit, uint3* tid,
                                     uint3* bid, dim3* bDim, dim3* gDim, int* wSize) {
  const Entered entered(Api::__cudaRegisterFunction);
  Registry& r = registry();
  const std::unique_lock lock(r.mutex);
  r.functions.push_back({hostFun, reinterpret_cast<Module*>(fatCubinHandle), deviceName});
}

PYFT_API void __cudaRegisterVar(void** fatCubinHandle, char* hostVar, char* deviceAddress,
                                const char* deviceName, int ext, size_t size, int constant,
                                int global) {
  const Entered entered(Api::__cudaRegisterVar);
  Registry& r = registry();
  const std::unique_lock lock(r.mutex);
  r.variables.push_back({hostVar, reinterpret_cast<Module*>(fatCubinHandle), deviceName});
}

PYFT_API void __cudaRegisterManagedVar(void** fatCubinHandle, void** hostVarPtrAddress,
                                       char* deviceAddress, const char* deviceName, int ext,
                                       size_t size, int constant, int global) {
  const Entered entered(Api::__cudaRegisterManagedVar);
}

PYFT_API char __cudaInitModule(void** fatCubinHandle) {
  const Entered entered(Api::__cudaInitModule);
  return 1;
}
