// The devices that this process has attached.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "client/device/device.h"
#include "pyft/fault.h"

namespace pyft::client {
namespace {

std::mutex attach_mutex;
std::atomic<Device*> devices[kMaxDevices];

// Device pointers must never be host pointers too, so the client keeps the whole window occupied.
bool reserve_window(uint64_t base) {
  void* const got = mmap(reinterpret_cast<void*>(base), ring::kDeviceWindowBytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == reinterpret_cast<void*>(base)) return true;
  if (got != MAP_FAILED) munmap(got, ring::kDeviceWindowBytes);
  return false;
}

void say_goodbye() {
  if (ring::in_forked_child()) return;
  std::fputs(fault::missed({"ring.", "objects."}).c_str(), stderr);
  for (auto& slot : devices)
    if (Device* device = slot.load(std::memory_order_acquire))
      if (device->health() != cudaErrorDevicesUnavailable) device->goodbye();
}

Device* attach_now(int ordinal) {
  const int number = process().devices[static_cast<size_t>(ordinal)];
  const uint64_t base = ring::kDeviceWindowBase + number * ring::kDeviceWindowBytes;
  if (!reserve_window(base)) {
    say("device [" + std::to_string(number) + "] has no address window: the range is taken");
    return nullptr;
  }
  ring::ClientAttachment attachment;
  std::string error;
  if (!ring::attach_client(process().agent.c_str(), static_cast<uint32_t>(number), &attachment,
                           &error)) {
    say("device [" + std::to_string(number) + "] cannot be used: " + error);
    return nullptr;
  }
  static const int registered = std::atexit(say_goodbye);
  static_cast<void>(registered);
  return new Device(ordinal, std::move(attachment));  // lives as long as the process
}

}  // namespace

Device* attach(int ordinal, cudaError_t* error) {
  *error = usable();
  if (*error != cudaSuccess) return nullptr;
  if (ordinal < 0 || ordinal >= static_cast<int>(process().devices.size())) {
    *error = cudaErrorInvalidDevice;
    return nullptr;
  }
  if (Device* ready = devices[ordinal].load(std::memory_order_acquire)) return ready;
  const std::lock_guard lock(attach_mutex);
  if (Device* ready = devices[ordinal].load(std::memory_order_acquire)) return ready;
  static bool failed[kMaxDevices];
  Device* made = failed[ordinal] ? nullptr : attach_now(ordinal);
  if (!made) {
    failed[ordinal] = true;
    *error = cudaErrorDevicesUnavailable;
    return nullptr;
  }
  devices[ordinal].store(made, std::memory_order_release);
  return made;
}

Device* adopt(int ordinal, ring::ClientAttachment attachment) {
  auto* device = new Device(ordinal, std::move(attachment));
  devices[ordinal].store(device, std::memory_order_release);
  return device;
}

Device* attached(cudaError_t* error) {
  return attach(current_device(), error);
}

Device* attached_or_null(int ordinal) {
  if (ordinal < 0 || ordinal >= kMaxDevices) return nullptr;
  return devices[ordinal].load(std::memory_order_acquire);
}

Device* device_of_address(uint64_t address) {
  for (auto& slot : devices)
    if (Device* device = slot.load(std::memory_order_acquire))
      if (address - device->window_base() < ring::kDeviceWindowBytes || device->has_global(address))
        return device;
  return nullptr;
}

Device* device_of_pinned(uint64_t address, uint64_t bytes) {
  for (auto& slot : devices) {
    Device* device = slot.load(std::memory_order_acquire);
    if (!device) continue;
    const auto base = reinterpret_cast<uint64_t>(device->channel().pinned());
    const uint64_t size = device->channel().pinned_bytes();
    if (address >= base && address - base < size && bytes <= size - (address - base)) return device;
  }
  return nullptr;
}

}  // namespace pyft::client
