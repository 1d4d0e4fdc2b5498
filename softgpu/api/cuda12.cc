// What programs built with CUDA 12 call by other names or with other structures than CUDA 13 has.
#include <cstddef>
#include <cstring>

#include "api/support.h"

namespace softgpu::api {

namespace {

// cudaDeviceProp as CUDA 12 lays it out. Fields that are always 0 here have a common name.
struct DeviceProp12 {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned luid_device_node_mask;
  size_t total_global_mem, shared_mem_per_block;
  int regs_per_block, warp_size;
  size_t mem_pitch;
  int max_threads_per_block, max_threads_dim[3], max_grid_size[3];
  int clock_rate;
  size_t total_const_mem;
  int major, minor;
  size_t texture_alignment, texture_pitch_alignment;
  int device_overlap, multi_processor_count, kernel_exec_timeout, integrated, can_map_host_memory;
  int compute_mode, texture_and_surface_limits[40];
  size_t surface_alignment;
  int concurrent_kernels, ecc_enabled, pci_bus_id, pci_device_id, pci_domain_id, tcc_driver;
  int async_engine_count, unified_addressing, memory_clock_rate, memory_bus_width, l2_cache_size;
  int persisting_l2_cache_max_size, max_threads_per_multi_processor, stream_priorities_supported;
  int global_l1_cache_supported, local_l1_cache_supported;
  size_t shared_mem_per_multiprocessor;
  int regs_per_multiprocessor, managed_memory, multi_gpu_board[2], host_native_atomic_supported;
  int single_to_double_ratio, pageable_memory_access, concurrent_managed_access;
  int compute_preemption_supported, can_use_host_pointer_for_registered_mem, cooperative_launch;
  int cooperative_multi_device_launch;
  size_t shared_mem_per_block_optin;
  int pageable_memory_access_uses_host_page_tables, direct_managed_mem_access_from_host;
  int max_blocks_per_multi_processor, access_policy_max_window_size;
  size_t reserved_shared_mem_per_block;
  int host_register_supported, unused[75];
};
static_assert(sizeof(DeviceProp12) == 1032);
static_assert(offsetof(DeviceProp12, texture_alignment) == 368);
static_assert(offsetof(DeviceProp12, surface_alignment) == 568);
static_assert(offsetof(DeviceProp12, l2_cache_size) == 616);
static_assert(offsetof(DeviceProp12, shared_mem_per_multiprocessor) == 640);
static_assert(offsetof(DeviceProp12, shared_mem_per_block_optin) == 696);
static_assert(offsetof(DeviceProp12, host_register_supported) == 728);

DeviceProp12 translated(const cudaDeviceProp& p) {
  DeviceProp12 out{};
  std::memcpy(out.name, p.name, sizeof out.name);
  out.uuid = p.uuid;
  out.total_global_mem = p.totalGlobalMem;
  out.shared_mem_per_block = p.sharedMemPerBlock;
  out.regs_per_block = p.regsPerBlock;
  out.warp_size = p.warpSize;
  out.mem_pitch = p.memPitch;
  out.max_threads_per_block = p.maxThreadsPerBlock;
  std::memcpy(out.max_threads_dim, p.maxThreadsDim, sizeof out.max_threads_dim);
  std::memcpy(out.max_grid_size, p.maxGridSize, sizeof out.max_grid_size);
  out.total_const_mem = p.totalConstMem;
  out.major = p.major;
  out.minor = p.minor;
  out.texture_alignment = p.textureAlignment;
  out.texture_pitch_alignment = p.texturePitchAlignment;
  out.multi_processor_count = p.multiProcessorCount;
  out.can_map_host_memory = p.canMapHostMemory;
  out.surface_alignment = p.surfaceAlignment;
  out.concurrent_kernels = p.concurrentKernels;
  out.ecc_enabled = p.ECCEnabled;
  out.pci_bus_id = p.pciBusID;
  out.pci_device_id = p.pciDeviceID;
  out.pci_domain_id = p.pciDomainID;
  out.async_engine_count = p.asyncEngineCount;
  out.device_overlap = p.asyncEngineCount != 0;
  out.unified_addressing = p.unifiedAddressing;
  out.memory_bus_width = p.memoryBusWidth;
  out.l2_cache_size = p.l2CacheSize;
  out.max_threads_per_multi_processor = p.maxThreadsPerMultiProcessor;
  out.stream_priorities_supported = p.streamPrioritiesSupported;
  out.global_l1_cache_supported = p.globalL1CacheSupported;
  out.local_l1_cache_supported = p.localL1CacheSupported;
  out.shared_mem_per_multiprocessor = p.sharedMemPerMultiprocessor;
  out.regs_per_multiprocessor = p.regsPerMultiprocessor;
  out.can_use_host_pointer_for_registered_mem = p.canUseHostPointerForRegisteredMem;
  out.cooperative_launch = p.cooperativeLaunch;
  out.shared_mem_per_block_optin = p.sharedMemPerBlockOptin;
  out.max_blocks_per_multi_processor = p.maxBlocksPerMultiProcessor;
  out.host_register_supported = p.hostRegisterSupported;
  return out;
}

}  // namespace
}  // namespace softgpu::api

// CUDA 12's name for the version with its structure; CUDA 13 has the plain name.
SOFTGPU_API cudaError_t cudaGetDeviceProperties_v2(void* out, int device) {
  cudaDeviceProp properties;
  const cudaError_t bad = cudaGetDeviceProperties(out ? &properties : nullptr, device);
  if (bad != cudaSuccess) return bad;
  const auto translated = softgpu::api::translated(properties);
  std::memcpy(out, &translated, sizeof translated);
  return cudaSuccess;
}
