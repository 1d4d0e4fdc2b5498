#include "client/memory/virtual_memory.h"

#include <map>

#include "api/commands.h"
#include "client/process/handles.h"

namespace pyft::client {
namespace {

struct Reservation {
  uint64_t bytes;
  Device* device;
};

// Lives in the server while a process has the handle or a mapping exists, so that the handle of
// a mapping can be had again.
struct Physical {
  Device* device;
  uint64_t bytes;
  CUmemAllocationProp prop;
  uint32_t references = 1, mappings = 0;
};

struct Mapping {
  uint64_t bytes, handle;
  bool accessible = false;
};

struct Tables {
  std::mutex mutex;
  std::atomic<uint32_t> count{0};  // of reservations: programs without any skip the lock
  std::map<uint64_t, Reservation> reservations;
  std::map<uint64_t, Physical> physical;
  std::map<uint64_t, Mapping> mappings;
};

// Never destroyed: memory may be released while the process exits.
Tables& tables() {
  static auto* const all = new Tables;
  return *all;
}

CUresult result(cudaError_t error) {
  return static_cast<CUresult>(error);
}

CUresult refuse(const char* call, const std::string& what) {
  say(std::string("[").append(call) + "] " + what);
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool whole_granules(uint64_t address, uint64_t bytes) {
  return bytes && (address | bytes) % ring::kGranule == 0 && bytes <= UINT64_MAX - address;
}

// The entry of an ordered map whose range [key, key + bytes) contains the address, or end().
template <class Map>
typename Map::iterator containing(Map& map, uint64_t address) {
  auto after = map.upper_bound(address);
  if (after == map.begin()) return map.end();
  --after;
  return address - after->first < after->second.bytes ? after : map.end();
}

bool overlaps_mapping(uint64_t address, uint64_t bytes) {
  auto& all = tables().mappings;
  const auto next = all.lower_bound(address);
  return containing(all, address) != all.end() ||
         (next != all.end() && next->first < address + bytes);
}

// Mappings that fill the range exactly, as the driver wants them; empty if they do not.
std::vector<uint64_t> exact_mappings(uint64_t address, uint64_t bytes) {
  std::vector<uint64_t> starts;
  uint64_t at = address;
  for (auto it = tables().mappings.find(address);
       it != tables().mappings.end() && it->first == at && at < address + bytes; ++it) {
    starts.push_back(at);
    at += it->second.bytes;
  }
  if (at != address + bytes) starts.clear();
  return starts;
}

CUresult drop_if_unused(uint64_t handle) {
  const auto found = tables().physical.find(handle);
  if (found->second.references || found->second.mappings) return CUDA_SUCCESS;
  Device* device = found->second.device;
  tables().physical.erase(found);
  const CUresult released = result(device->confirm(Call::cuMemRelease, cmd::cuMemRelease{handle}));
  if (released == CUDA_SUCCESS) end_handle(handle);
  return released;
}

Device* device_of_reservation(uint64_t address) {
  const std::lock_guard lock(tables().mutex);
  const auto range = containing(tables().reservations, address);
  return range == tables().reservations.end() ? nullptr : range->second.device;
}

CUresult wanted_access(const Device& device, const CUmemAccessDesc* list, size_t count,
                       uint32_t* flags) {
  for (size_t i = 0; i < count; ++i) {
    const CUmemLocation& place = list[i].location;
    if (place.type != CU_MEM_LOCATION_TYPE_DEVICE || place.id != device.ordinal())
      return refuse("cuMemSetAccess", "of location [" + std::to_string(place.id) +
                                          "] to memory of device [" +
                                          std::to_string(device.ordinal()) + "]");
    *flags = list[i].flags;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult reserve_addresses(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t flags,
                           CUdeviceptr* out) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return result(error);
  if (!out || !whole_granules(0, bytes) || alignment & (alignment - 1) || flags)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(tables().mutex);
  const std::lock_guard windows(device->memory_mutex);
  const uint64_t address = device->memory.reserve(bytes, alignment, wanted);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  tables().reservations[address] = {bytes, device};
  ++tables().count;
  *out = address;
  return CUDA_SUCCESS;
}

CUresult free_addresses(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(tables().mutex);
  const auto found = tables().reservations.find(address);
  if (found == tables().reservations.end() || found->second.bytes != bytes ||
      overlaps_mapping(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = found->second.device;
  tables().reservations.erase(found);
  --tables().count;
  const std::lock_guard windows(device->memory_mutex);
  device->memory.unreserve(address, bytes);
  return CUDA_SUCCESS;
}

CUresult check_properties(const CUmemAllocationProp& prop) {
  if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return refuse("cuMemCreate", "of location type [" +
                                     std::to_string(static_cast<int>(prop.location.type)) +
                                     "]: only device memory can be created");
  // A file descriptor may be asked for in advance; exporting it is what fails.
  const int types = prop.requestedHandleTypes;
  return types & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_ERROR_NOT_SUPPORTED
                                                           : CUDA_SUCCESS;
}

CUresult create_memory(uint64_t bytes, const CUmemAllocationProp* prop, uint64_t flags,
                       CUmemGenericAllocationHandle* out) {
  if (!out || !prop || flags || !whole_granules(0, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_properties(*prop)) return bad;
  cudaError_t error;
  Device* device = attach(prop->location.id, &error);
  if (!device) return result(error);
  const uint64_t handle = mint_handle(HandleKind::kPhysicalMemory);
  if (!handle) return CUDA_ERROR_OUT_OF_MEMORY;
  error = device->confirm(Call::cuMemCreate, cmd::cuMemCreate{handle, bytes});
  if (error != cudaSuccess) return result(error);
  const std::lock_guard lock(tables().mutex);
  tables().physical[handle] = {device, bytes, *prop};
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult release_memory(uint64_t handle) {
  const std::lock_guard lock(tables().mutex);
  const auto found = tables().physical.find(handle);
  if (found == tables().physical.end() || !found->second.references)
    return CUDA_ERROR_INVALID_VALUE;
  --found->second.references;
  return drop_if_unused(handle);
}

CUresult map_memory(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle,
                    uint64_t flags) {
  const std::lock_guard lock(tables().mutex);
  const auto memory = tables().physical.find(handle);
  if (memory == tables().physical.end() || !memory->second.references || flags ||
      !whole_granules(address, bytes) || offset % ring::kGranule || offset > memory->second.bytes ||
      bytes > memory->second.bytes - offset)
    return CUDA_ERROR_INVALID_VALUE;
  const auto range = containing(tables().reservations, address);
  if (range == tables().reservations.end() ||
      bytes > range->second.bytes - (address - range->first) || overlaps_mapping(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = memory->second.device;
  if (device != range->second.device)
    return refuse("cuMemMap", "of memory of device [" + std::to_string(device->ordinal()) +
                                  "] at an address reserved on device [" +
                                  std::to_string(range->second.device->ordinal()) + "]");
  const cudaError_t error =
      device->confirm(Call::cuMemMap, cmd::cuMemMap{address, bytes, offset, handle});
  if (error != cudaSuccess) return result(error);
  ++memory->second.mappings;
  tables().mappings[address] = {bytes, handle};
  return CUDA_SUCCESS;
}

// Each mapping goes by a command of its own: its address is what the object log knows it by.
CUresult unmap_memory(uint64_t address, uint64_t bytes) {
  Device* device = device_of_reservation(address);
  if (!device || !whole_granules(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (const cudaError_t error = device->synchronize_all(); error != cudaSuccess)
    return result(error);
  const std::lock_guard lock(tables().mutex);
  const std::vector<uint64_t> starts = exact_mappings(address, bytes);
  if (starts.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const uint64_t start : starts) {
    const auto mapping = tables().mappings.find(start);
    const cudaError_t error =
        device->confirm(Call::cuMemUnmap, cmd::cuMemUnmap{start, mapping->second.bytes});
    if (error != cudaSuccess) return result(error);
    const uint64_t handle = mapping->second.handle;
    tables().mappings.erase(mapping);
    --tables().physical.at(handle).mappings;
    if (const CUresult bad = drop_if_unused(handle)) return bad;
  }
  return CUDA_SUCCESS;
}

CUresult set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc* list, size_t count) {
  Device* device = device_of_reservation(address);
  if (!device || !list || !count || !whole_granules(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  uint32_t flags = 0;
  if (const CUresult bad = wanted_access(*device, list, count, &flags)) return bad;
  const std::lock_guard lock(tables().mutex);
  const std::vector<uint64_t> starts = exact_mappings(address, bytes);
  if (starts.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const uint64_t start : starts) {
    Mapping& mapping = tables().mappings.at(start);
    const cudaError_t error =
        device->confirm(Call::cuMemSetAccess, cmd::cuMemSetAccess{start, mapping.bytes, flags, 0});
    if (error != cudaSuccess) return result(error);
    mapping.accessible = flags & CU_MEM_ACCESS_FLAGS_PROT_READ;
  }
  return CUDA_SUCCESS;
}

CUresult retain_memory(uint64_t address, CUmemGenericAllocationHandle* out) {
  const std::lock_guard lock(tables().mutex);
  const auto found = containing(tables().mappings, address);
  if (!out || found == tables().mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  ++tables().physical.at(found->second.handle).references;
  *out = found->second.handle;
  return CUDA_SUCCESS;
}

CUresult memory_properties(uint64_t handle, CUmemAllocationProp* out) {
  const std::lock_guard lock(tables().mutex);
  const auto found = tables().physical.find(handle);
  if (!out || found == tables().physical.end() || !found->second.references)
    return CUDA_ERROR_INVALID_VALUE;
  *out = found->second.prop;
  return CUDA_SUCCESS;
}

bool find_reserved(uint64_t address, Mapped* out) {
  if (!tables().count.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(tables().mutex);
  if (containing(tables().reservations, address) == tables().reservations.end()) return false;
  const auto found = containing(tables().mappings, address);
  *out = found == tables().mappings.end()
             ? Mapped{}
             : Mapped{found->first, found->second.bytes, found->second.accessible};
  return true;
}

bool covers(const Device& device, uint64_t address, uint64_t bytes) {
  if (!tables().count.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(tables().mutex);
  const auto range = containing(tables().reservations, address);
  if (range == tables().reservations.end() || range->second.device != &device) return false;
  for (auto it = containing(tables().mappings, address);
       it != tables().mappings.end() && it->first <= address && it->second.accessible; ++it) {
    const uint64_t here = it->second.bytes - (address - it->first);
    if (bytes <= here) return true;
    bytes -= here;
    address += here;
  }
  return false;
}

}  // namespace pyft::client
