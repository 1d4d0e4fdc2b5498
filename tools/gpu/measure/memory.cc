// Device memory: the address window, mappings, and a process that holds much of it.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "driver.h"

namespace measure {

namespace {

constexpr CUdeviceptr kWindow = 0x1800'0000'0000;  // proxy/ring/layout.h
constexpr size_t kWindowBytes = size_t{1} << 40;

// The libraries a server loads before it reserves its window may take addresses.
void load_libraries(const std::string& list) {
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    const std::string file = list.substr(at, end - at);
    if (!dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) fail(std::string(dlerror()));
    at = end + 1;
  }
}

// Where else the window could be, should kDeviceWindowBase have to change.
std::string other_places() {
  constexpr CUdeviceptr kTiB = CUdeviceptr{1} << 40;
  constexpr CUdeviceptr kPlaces[] = {kWindow + kTiB,   kWindow + 7 * kTiB, 0x2000'0000'0000,
                                     0x5000'0000'0000, 0x6600'0000'0000,   0x7000'0000'0000};
  std::string works;
  for (const CUdeviceptr wanted : kPlaces) {
    CUdeviceptr got = 0;
    if (DRIVER(cuMemAddressReserve)(&got, kWindowBytes, 0, wanted, 0) != CUDA_SUCCESS) continue;
    char text[32];
    std::snprintf(text, sizeof text, " 0x%llx", got);
    if (got == wanted) works += text;
    DRIVER(cuMemAddressFree)(got, kWindowBytes);
  }
  return works.empty() ? " nowhere that was tried" : works;
}

void set(const Mapping& memory) {
  check(DRIVER(cuMemsetD8Async)(memory.address, 1, memory.bytes, nullptr), "cuMemsetD8Async");
}

}  // namespace

// One reservation in a fresh process. The argument lists libraries to load first.
void window(const std::string& argument) {
  load_libraries(argument);
  open_device();
  CUdeviceptr got = 0;
  const double began = now_us();
  check(DRIVER(cuMemAddressReserve)(&got, kWindowBytes, 0, kWindow, 0), "cuMemAddressReserve");
  figure("reserve_us", now_us() - began, "us");
  if (got != kWindow) {
    char text[96];
    std::snprintf(text, sizeof text, "1 TiB is reserved at 0x%llx instead of 0x%llx", got, kWindow);
    fail(std::string(text) + "; it can be had at" + other_places());
  }
}

void mapping(const std::string&) {
  const CUdevice device = open_device();
  constexpr struct {
    const char* name;
    size_t bytes;
    int times;
  } kSizes[] = {{"2MiB", 2u << 20, 20}, {"20MiB", 20u << 20, 20}, {"1GiB", size_t{1} << 30, 5}};
  for (const auto& size : kSizes) {
    std::vector<double> create, map, access;
    for (int i = 0; i < size.times; ++i) {
      const Mapping made = map_memory(device, size.bytes);
      unmap_memory(made);
      create.push_back(made.create_us);
      map.push_back(made.map_us);
      access.push_back(made.access_us);
    }
    figure(std::string("create_") + size.name, median(create), "us");
    figure(std::string("map_") + size.name, median(map), "us");
    figure(std::string("access_") + size.name, median(access), "us");
  }
}

// "idle", "busy" or "hung" and a share of the free memory in percent: maps that much, says so, and
// waits for SIGKILL. "free" prints how much is free instead.
void hold(const std::string& argument) {
  const CUdevice device = open_device();
  size_t free_bytes = 0, total = 0;
  check(DRIVER(cuMemGetInfo)(&free_bytes, &total), "cuMemGetInfo");
  figure("free_MiB", static_cast<double>(free_bytes >> 20), "MiB");
  if (argument.rfind("free", 0) == 0) return;
  const size_t percent = static_cast<size_t>(std::atoi(argument.c_str() + 4));
  constexpr size_t kPiece = size_t{256} << 20;
  std::vector<Mapping> held;
  for (size_t bytes = 0; bytes + kPiece <= free_bytes / 100 * percent; bytes += kPiece) {
    held.push_back(map_memory(device, kPiece));
    set(held.back());
  }
  check(DRIVER(cuCtxSynchronize)(), "cuCtxSynchronize");
  figure("held_MiB", static_cast<double>(held.size() * (kPiece >> 20)), "MiB");
  CUfunction spin = nullptr;
  if (argument.rfind("hung", 0) == 0) spin = kernel(load_kernels(), "spin_for_ever");
  if (spin)
    check(DRIVER(cuLaunchKernel)(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
          "cuLaunchKernel");
  std::printf("holding\n");
  std::fflush(stdout);
  while (argument.rfind("busy", 0) == 0 && !held.empty()) {
    for (int i = 0; i < 16; ++i) set(held[static_cast<size_t>(i) % held.size()]);
    check(DRIVER(cuStreamSynchronize)(nullptr), "cuStreamSynchronize");
  }
  for (;;) pause();
}

}  // namespace measure
