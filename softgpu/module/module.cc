#include "module/module.h"

#include <cstring>

#include "core/log.h"
#include "device/device.h"
#include "loader/fatbin.h"

namespace softgpu {
namespace {

constexpr uint64_t kVariableAlign = 256;

}  // namespace

uint64_t Module::section_address(VariableSection section) const {
  switch (section) {
    case VariableSection::kGlobal:
      return memory_;
    case VariableSection::kGlobalInit:
      return memory_ + init_offset_;
    case VariableSection::kConstant3:
      return memory_ + constant_offset_;
  }
  return 0;
}

std::string Module::place_variables() {
  init_offset_ = round_up(cubin_.global_bytes, kVariableAlign);
  constant_offset_ = init_offset_ + round_up(cubin_.global_init.size(), kVariableAlign);
  const uint64_t bytes = constant_offset_ + cubin_.constant3.size();
  if (bytes == 0) return "";
  DeviceMemory& memory = softgpu::device(device).memory();
  if (memory.allocate_auxiliary(bytes, &memory_) != cudaSuccess) {
    return "no device memory for [" + std::to_string(bytes) + "] bytes of variables";
  }
  auto* base = reinterpret_cast<uint8_t*>(memory_);
  std::memset(base, 0, bytes);  // a reused slab holds old content
  const auto copy = [&](uint64_t offset, std::span<const uint8_t> from) {
    if (!from.empty()) std::memcpy(base + offset, from.data(), from.size());
  };
  copy(init_offset_, cubin_.global_init);
  copy(constant_offset_, cubin_.constant3);
  return "";
}

void Module::make_kernel(CubinKernel& from) {
  auto kernel = std::make_unique<Kernel>();
  kernel->name = from.name;
  kernel->text = code_.empty() ? from.text : std::span<const uint8_t>(code_);
  kernel->entry = code_.empty() ? 0 : static_cast<uint32_t>(from.entry);
  kernel->register_count = from.register_count;
  kernel->static_shared_bytes = from.static_shared_bytes;
  kernel->local_bytes = from.local_bytes;
  kernel->max_threads = from.max_threads;
  kernel->param_base = from.param_base;
  kernel->param_bytes = from.param_bytes;
  kernel->params = from.params;
  kernel->max_dynamic_shared_bytes = 48 * 1024 - std::min(48u * 1024, from.static_shared_bytes);
  kernel->banks[2] = from.literals;
  if (!cubin_.constant3.empty()) {
    const auto* constants =
        reinterpret_cast<const uint8_t*>(section_address(VariableSection::kConstant3));
    kernel->banks[3] = {constants, cubin_.constant3.size()};
  }
  kernel->banks[4] = constant4_;
  kernels_[from.name] = std::move(kernel);
}

std::string Module::load(SharedImage image) {
  if (std::string error = parse_cubin(std::move(image), &cubin_); !error.empty()) return error;
  if (std::string error = place_variables(); !error.empty()) return error;
  constant4_.assign(cubin_.constant4.begin(), cubin_.constant4.end());
  code_ = cubin_.linked_code;
  const std::span<uint8_t> initial(
      reinterpret_cast<uint8_t*>(section_address(VariableSection::kGlobalInit)),
      cubin_.global_init.size());
  for (const CubinRelocation& r : cubin_.relocations) {
    const uint64_t address = r.is_code ? r.code_address : section_address(r.section) + r.addend;
    const std::span<uint8_t> place = r.place == RelocationPlace::kCode         ? code_
                                     : r.place == RelocationPlace::kGlobalInit ? initial
                                                                               : constant4_;
    apply_relocation(r, address, place);
  }
  for (auto& [name, kernel] : cubin_.kernels) {
    if (kernel.problem.empty()) make_kernel(kernel);
  }
  return "";
}

Kernel* Module::kernel(const std::string& name, std::string* problem) {
  const auto it = kernels_.find(name);
  if (it != kernels_.end()) return it->second.get();
  const auto unusable = cubin_.kernels.find(name);
  if (problem) {
    *problem = unusable == cubin_.kernels.end() ? "no such kernel in its module"
                                                : unusable->second.problem;
  }
  return nullptr;
}

bool Module::variable(const std::string& name, uint64_t* address, uint64_t* bytes) const {
  const auto it = cubin_.variables.find(name);
  if (it == cubin_.variables.end()) return false;
  *address = section_address(it->second.section) + it->second.offset;
  *bytes = it->second.size;
  return true;
}

void Module::unload() {
  if (memory_) softgpu::device(device).memory().release(memory_);
  memory_ = 0;
}

std::string Library::keep() {
  std::lock_guard lock(mutex_);
  std::string error;
  kept_ = extracted(&error);
  image_ = nullptr;
  return error;
}

SharedImage Library::extracted(std::string* error) const {
  auto cubin = std::make_shared<std::vector<uint8_t>>();
  *error = extract_cubin(image_, cubin.get());
  return cubin;
}

Module* Library::module(int device, std::string* error) {
  std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(device);
  if (modules_[index]) return modules_[index].get();
  if (errors_[index].empty() && !image_ && !kept_) errors_[index] = "its image has been unloaded";
  if (errors_[index].empty()) {
    auto loaded = std::make_unique<Module>(this, device);
    const SharedImage cubin = kept_ ? kept_ : extracted(&errors_[index]);
    if (errors_[index].empty()) errors_[index] = loaded->load(cubin);
    if (errors_[index].empty()) {
      modules_[index] = std::move(loaded);
      return modules_[index].get();
    }
  }
  *error = errors_[index];
  return nullptr;
}

Function* Library::function(const std::string& name, int device) {
  std::lock_guard lock(mutex_);
  const auto [it, added] = functions_.try_emplace({name, device}, nullptr);
  if (added) {
    it->second = std::make_unique<Function>();
    it->second->library = this;
    it->second->name = it->first.first.c_str();
    it->second->device = device;
  }
  return it->second.get();
}

void Library::unload() {
  std::lock_guard lock(mutex_);
  for (auto& m : modules_) {
    if (m) m->unload();
  }
  image_ = nullptr;
  kept_.reset();
}

cudaError_t resolve_kernel(Function& function, int device, Kernel** kernel) {
  auto& slot = function.kernels[static_cast<size_t>(device)];
  *kernel = slot.load(std::memory_order_acquire);
  if (*kernel) return cudaSuccess;
  std::string error;
  Module* module = function.library->module(device, &error);
  if (!module) {
    log_line(SOFTGPU_LOG_WARNING, "kernel [%s] cannot be loaded: %s", function.name, error.c_str());
    return cudaErrorInvalidKernelImage;
  }
  *kernel = module->kernel(function.name, &error);
  if (!*kernel) {
    log_line(SOFTGPU_LOG_WARNING, "kernel [%s] cannot be used: %s", function.name, error.c_str());
    return cudaErrorInvalidDeviceFunction;
  }
  slot.store(*kernel, std::memory_order_release);
  return cudaSuccess;
}

}  // namespace softgpu
