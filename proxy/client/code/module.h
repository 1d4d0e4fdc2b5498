// Code: modules (fatbins registered by programs, images loaded by the driver API), their kernels
// and variables. A module is sent to a device when something of it is used there first.
//
// cudaKernel_t, CUfunction and CUkernel are a Kernel*, CUmodule and CUlibrary a Module*: they only
// have meaning in this process. What crosses the ring are minted handles.
#ifndef PYFT_CLIENT_CODE_MODULE_H_
#define PYFT_CLIENT_CODE_MODULE_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/device/device.h"

namespace pyft::client {

struct KernelOnDevice {
  uint64_t handle = 0;
  KernelInfo info;
  std::atomic<int32_t> max_dynamic_shared{0};
};

class Module;

struct Kernel {
  static constexpr uint32_t kMagic = 0x4b544650;
  Kernel(Module& module, std::string name) : module(module), name(std::move(name)) {}
  const uint32_t magic = kMagic;
  Module& module;
  std::string name;
  std::atomic<KernelOnDevice*> on[kMaxDevices] = {};
};

struct Global {
  uint64_t address = 0, bytes = 0;
};

class Module {
 public:
  static constexpr uint32_t kMagic = 0x4d544650;
  // `image` must stay; owned modules keep a copy instead.
  explicit Module(const void* image, bool own);

  bool valid() const { return magic_ == kMagic; }
  // Sends the module to the device unless it is there. The driver's code.
  CUresult load(Device& device, uint64_t* handle);
  CUresult unload();
  // The kernel of that name; it need not exist on any device. Same pointer for the same name.
  Kernel* kernel(const std::string& name);
  CUresult global(Device& device, const std::string& name, Global* out);

 private:
  uint32_t magic_ = kMagic;
  std::vector<std::byte> copy_;
  const void* image_;
  std::mutex mutex_;
  uint64_t handles_[kMaxDevices] = {};
  CUresult failed_[kMaxDevices] = {};
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
  std::map<std::pair<int, std::string>, Global> globals_;
};

// The kernel with its parameter layout on this device, fetched on first use.
cudaError_t resolve(Kernel& kernel, Device& device, KernelOnDevice** out);
// What the driver would say of a launch of that shape.
cudaError_t check_launch(const KernelOnDevice& kernel, Device& device, dim3 grid, dim3 block,
                         size_t shared_bytes);
// The kernel that commands name by this handle; nullptr: none.
Kernel* kernel_of_command(uint64_t handle);

// Registered by programs: host function or variable -> kernel or variable of a module.
Kernel* kernel_of_function(const void* host_function);
// A Kernel from a handle the program holds (cudaKernel_t, CUfunction, or a host function).
Kernel* kernel_of_handle(const void* handle);
Module* module_of_handle(const void* handle);
cudaError_t symbol_address(const void* symbol, Device& device, Global* out);

cudaError_t kernel_attribute(Kernel& kernel, Device& device, CUfunction_attribute attribute,
                             int* value);
cudaError_t set_kernel_attribute(Kernel& kernel, Device& device, int attribute, int value);
cudaError_t occupancy(Kernel& kernel, Device& device, int block_size, size_t shared_bytes,
                      unsigned flags, int* blocks);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_CODE_MODULE_H_
