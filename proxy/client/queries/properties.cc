#include "client/queries/properties.h"

#include <cstdlib>
#include <cstring>

#include "api/commands.h"
#include "client/device/stream.h"
#include "client/queries/unserved.h"
#include "pyft/settings.h"

namespace pyft::client {
namespace {

constexpr uint32_t kAttributes = 200;  // ids 1 .. 199; the server says how many it knows

struct Facts {
  std::mutex mutex;
  std::atomic<bool> ready{false};
  int32_t attributes[kAttributes] = {};
  uint32_t attribute_count = 0;
  cudaDeviceProp properties{};
  LaunchLimits limits{};
};
Facts facts[kMaxDevices];

void fill_limits(Facts& f) {
  const int32_t* a = f.attributes;
  for (int i = 0; i < 3; ++i) {
    f.limits.block[i] = static_cast<uint32_t>(a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]);
    f.limits.grid[i] = static_cast<uint32_t>(a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]);
  }
  f.limits.threads = static_cast<uint32_t>(a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK]);
}

cudaError_t fetch(Device& device, uint32_t number, Facts& f) {
  Reply reply;
  const cmd::cudaDeviceGetAttribute attributes{number, 0, kAttributes, 0};
  cudaError_t error = device.call(static_cast<uint16_t>(Call::cudaDeviceGetAttribute),
                                  bytes_of(attributes), &reply);
  if (error != cudaSuccess) return error;
  if (reply.code != 0) return static_cast<cudaError_t>(reply.code);
  const size_t bytes = std::min(reply.data.size(), sizeof f.attributes);
  std::memcpy(f.attributes, reply.data.data(), bytes);
  f.attribute_count = static_cast<uint32_t>(bytes / sizeof(int32_t));
  error = device.call(static_cast<uint16_t>(Call::cudaGetDeviceProperties),
                      bytes_of(cmd::cudaGetDeviceProperties{number, 0}), &reply);
  if (error != cudaSuccess) return error;
  if (reply.code != 0) return static_cast<cudaError_t>(reply.code);
  if (reply.data.size() != sizeof f.properties) return cudaErrorUnknown;
  std::memcpy(&f.properties, reply.data.data(), sizeof f.properties);
  hide_unserved(f.attributes, &f.properties);
  fill_limits(f);
  return cudaSuccess;
}

// PyTorch looks at all devices before it chooses one, which under torchrun is LOCAL_RANK.
int likely_device() {
  const char* rank = settings::local_rank();
  if (current_device() != 0 || !*rank) return current_device();
  char* end = nullptr;
  const long device = std::strtol(rank, &end, 10);
  const bool exists = *end == 0 && device >= 0 &&
                      device < static_cast<long>(process().devices.size()) &&
                      !attached_or_null(static_cast<int>(device));
  return exists ? static_cast<int>(device) : 0;
}

// Any server can be asked about any device, since it sees all of the job. PyTorch looks at all
// devices at its start: with one of their own for that, N ranks would have N * N servers.
Device* who_knows(int ordinal, cudaError_t* error) {
  *error = usable();
  if (*error != cudaSuccess) return nullptr;
  if (ordinal < 0 || ordinal >= static_cast<int>(process().devices.size())) {
    *error = cudaErrorInvalidDevice;
    return nullptr;
  }
  if (Device* itself = attached_or_null(ordinal)) return itself;
  for (int other = 0; other < kMaxDevices; ++other)
    if (Device* device = attached_or_null(other); device && device->health() == cudaSuccess)
      return device;
  const int likely = likely_device();
  return attach(attached_or_null(likely) ? ordinal : likely, error);  // attached: it is dead
}

cudaError_t facts_of(Device& device, int ordinal, const Facts** out) {
  Facts& f = facts[ordinal];
  *out = &f;
  if (f.ready.load(std::memory_order_acquire)) return cudaSuccess;
  const std::lock_guard lock(f.mutex);
  if (f.ready.load(std::memory_order_acquire)) return cudaSuccess;
  const bool itself = device.ordinal() == ordinal;
  const uint32_t number =
      itself ? device.channel().device() : static_cast<uint32_t>(process().devices[ordinal]);
  const cudaError_t error = fetch(device, number, f);
  if (error == cudaSuccess) f.ready.store(true, std::memory_order_release);
  return error;
}

cudaError_t attribute_of(Device& through, int ordinal, int attribute, int* value) {
  const Facts* f = nullptr;
  if (const cudaError_t error = facts_of(through, ordinal, &f); error != cudaSuccess) return error;
  if (attribute < 1 || attribute >= static_cast<int>(f->attribute_count))
    return cudaErrorInvalidValue;
  *value = f->attributes[attribute];
  return cudaSuccess;
}

}  // namespace

cudaError_t device_attribute(Device& device, int attribute, int* value) {
  return attribute_of(device, device.ordinal(), attribute, value);
}

cudaError_t attribute_of_ordinal(int ordinal, int attribute, int* value) {
  if (!value) return cudaErrorInvalidValue;
  cudaError_t error;
  Device* through = who_knows(ordinal, &error);
  return through ? attribute_of(*through, ordinal, attribute, value) : error;
}

cudaError_t properties_of_ordinal(int ordinal, const cudaDeviceProp** out) {
  cudaError_t error;
  Device* through = who_knows(ordinal, &error);
  if (!through) return error;
  const Facts* f = nullptr;
  error = facts_of(*through, ordinal, &f);
  *out = &f->properties;
  return error;
}

cudaError_t launch_limits(Device& device, const LaunchLimits** out) {
  const Facts* f = nullptr;
  const cudaError_t error = facts_of(device, device.ordinal(), &f);
  *out = &f->limits;
  return error;
}

}  // namespace pyft::client
