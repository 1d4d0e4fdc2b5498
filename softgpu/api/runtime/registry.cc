// What nvcc's start-up code tells us: which fat binaries a program has, and which host addresses
// stand for their kernels and variables. torch registers 445 binaries and 21,504 functions at
// import, so nothing is read or copied here.
#include <cstring>
#include <deque>
#include <shared_mutex>
#include <unordered_map>

#include "api/support.h"
#include "work/transfer.h"

namespace softgpu::api {
namespace {

struct RegisteredVariable {
  Library* library;
  const char* name;
};

struct Registry {
  std::shared_mutex mutex;
  std::deque<Library> libraries;
  std::deque<Function> functions;
  std::unordered_map<const void*, Function*> by_address;
  std::unordered_map<const void*, RegisteredVariable> variables;
};

Registry& registry() {
  static Registry* all = std::make_unique<Registry>().release();
  return *all;
}

cudaError_t find_symbol(const void* symbol, Device& d, uint64_t* address, uint64_t* bytes) {
  RegisteredVariable variable{};
  {
    std::shared_lock lock(registry().mutex);
    const auto it = registry().variables.find(symbol);
    if (it == registry().variables.end()) return cudaErrorInvalidSymbol;
    variable = it->second;
  }
  std::string error;
  Module* module = variable.library->module(d.index(), &error);
  if (!module || !module->variable(variable.name, address, bytes)) return cudaErrorInvalidSymbol;
  return cudaSuccess;
}

cudaError_t copy_symbol(const void* symbol, void* to, const void* from, size_t count, size_t offset,
                        cudaMemcpyKind kind, cudaStream_t stream, bool synchronous) {
  return record(with_stream(stream, [&](const std::shared_ptr<Stream>& s) {
    uint64_t address = 0, bytes = 0;
    const cudaError_t bad = find_symbol(symbol, device(s->device), &address, &bytes);
    if (bad != cudaSuccess) return bad;
    if (offset > bytes || count > bytes - offset) return cudaErrorInvalidValue;
    const uint64_t dst = to ? number(to) : address + offset;
    const uint64_t src = from ? number(from) : address + offset;
    return copy(s, dst, src, {count, 1, count, count}, kind, synchronous);
  }));
}

}  // namespace

// Handles and host addresses never collide: both are real addresses of different objects.
Function* registered_function(const void* address) {
  std::shared_lock lock(registry().mutex);
  const auto it = registry().by_address.find(address);
  return it == registry().by_address.end() ? nullptr : it->second;
}

}  // namespace softgpu::api

namespace api = softgpu::api;
using softgpu::Device;
using softgpu::Library;

SOFTGPU_API void** __cudaRegisterFatBinary(void* wrapper) {
  auto& r = api::registry();
  std::unique_lock lock(r.mutex);
  return reinterpret_cast<void**>(&r.libraries.emplace_back(wrapper));
}

SOFTGPU_API void __cudaRegisterFatBinaryEnd(void**) {}

// Modules stay loaded: at process exit, where this is called, work may still be running.
SOFTGPU_API void __cudaUnregisterFatBinary(void**) {}

SOFTGPU_API void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name,
                                        int, void*, void*, void*, void*, int*) {
  auto& r = api::registry();
  std::unique_lock lock(r.mutex);
  auto& function = r.functions.emplace_back();
  function.library = reinterpret_cast<Library*>(handle);
  function.name = name;
  r.by_address[host] = &function;
  r.by_address[&function] = &function;
}

SOFTGPU_API void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t,
                                   int, int) {
  auto& r = api::registry();
  std::unique_lock lock(r.mutex);
  r.variables[host] = {reinterpret_cast<Library*>(handle), name};
}

SOFTGPU_API char __cudaInitModule(void**) {
  return 0;
}

SOFTGPU_API cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  return api::record(api::with_device([&](Device& d) {
    uint64_t address = 0, bytes = 0;
    const cudaError_t status = api::find_symbol(symbol, d, &address, &bytes);
    if (status == cudaSuccess) *out = api::pointer(address);
    return status;
  }));
}

SOFTGPU_API cudaError_t cudaGetSymbolSize(size_t* out, const void* symbol) {
  return api::record(api::with_device([&](Device& d) {
    uint64_t address = 0;
    return api::find_symbol(symbol, d, &address, reinterpret_cast<uint64_t*>(out));
  }));
}

SOFTGPU_API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, size_t count,
                                           size_t offset, cudaMemcpyKind kind) {
  return api::copy_symbol(symbol, nullptr, src, count, offset, kind, nullptr, true);
}

SOFTGPU_API cudaError_t cudaMemcpyFromSymbol(void* dst, const void* symbol, size_t count,
                                             size_t offset, cudaMemcpyKind kind) {
  return api::copy_symbol(symbol, dst, nullptr, count, offset, kind, nullptr, true);
}

SOFTGPU_API cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* src, size_t count,
                                                size_t offset, cudaMemcpyKind kind,
                                                cudaStream_t stream) {
  return api::copy_symbol(symbol, nullptr, src, count, offset, kind, stream, false);
}

SOFTGPU_API cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const void* symbol, size_t count,
                                                  size_t offset, cudaMemcpyKind kind,
                                                  cudaStream_t stream) {
  return api::copy_symbol(symbol, dst, nullptr, count, offset, kind, stream, false);
}
