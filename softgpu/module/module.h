// Loaded code: a Library is an image (registered by the program or given to a load call); a Module
// is a Library on one device, with its own variables; a Function is an entry of a Library.
#ifndef SOFTGPU_MODULE_MODULE_H_
#define SOFTGPU_MODULE_MODULE_H_

#include <driver_types.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/kernel.h"
#include "loader/cubin.h"

namespace softgpu {

class Library;

class Module {
 public:
  Module(Library* library, int device) : library(library), device(device) {}
  // Gives memory to the variables and makes the kernels. Empty string on success.
  std::string load(SharedImage image);
  // nullptr if there is none that can run; `problem` then says why.
  Kernel* kernel(const std::string& name, std::string* problem = nullptr);
  bool variable(const std::string& name, uint64_t* address, uint64_t* bytes) const;
  const std::map<std::string, std::unique_ptr<Kernel>>& kernels() const { return kernels_; }
  // Where all variables lie, constants included; 0 bytes if there are none.
  uint64_t variables_address() const { return memory_; }
  uint64_t variables_bytes() const {
    return memory_ ? constant_offset_ + cubin_.constant3.size() : 0;
  }
  void unload();  // frees the variables; precondition: no queued work uses the module

  Library* const library;
  const int device;

 private:
  uint64_t section_address(VariableSection section) const;
  std::string place_variables();
  void make_kernel(CubinKernel& from);

  Cubin cubin_;
  uint64_t memory_ = 0;  // .nv.global, .nv.global.init and .nv.constant3, in this order
  uint64_t init_offset_ = 0, constant_offset_ = 0;
  std::vector<uint8_t> constant4_;
  std::vector<uint8_t> code_;  // linked and patched, if the kernels need that
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
};

// What the API calls CUfunction, CUkernel, cudaKernel_t and cudaFunction_t. Lives as long as its
// library.
struct Function {
  Library* library = nullptr;
  const char* name = nullptr;  // mangled
  int device = -1;             // of a CUfunction; -1: the current one
  std::array<std::atomic<Kernel*>, kMaxDevices> kernels{};
};

class Library {
 public:
  // `image` must stay valid until unload, unless `keep` is called.
  explicit Library(const void* image) : image_(image) {}
  // Unpacks now, so that the caller may free its image; the text of the problem if it cannot.
  std::string keep();
  // The library on a device, loaded at the first call; nullptr with `error` set if it cannot.
  Module* module(int device, std::string* error);
  // A function handle, the same for each call with the same name and device.
  Function* function(const std::string& name, int device);
  void unload();

 private:
  SharedImage extracted(std::string* error) const;

  std::mutex mutex_;
  const void* image_;
  SharedImage kept_;
  std::array<std::unique_ptr<Module>, kMaxDevices> modules_;
  std::array<std::string, kMaxDevices> errors_;
  std::map<std::pair<std::string, int>, std::unique_ptr<Function>> functions_;
};

// The kernel behind a function on a device. cudaErrorInvalidDeviceFunction or
// cudaErrorInvalidKernelImage, said once on stderr, if there is none.
cudaError_t resolve_kernel(Function& function, int device, Kernel** kernel);

}  // namespace softgpu

#endif  // SOFTGPU_MODULE_MODULE_H_
