#include "driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace measure {

namespace {

void* open_driver() {
  const char* named = std::getenv("MEASURE_DRIVER");
  void* const handle = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!handle) skip(std::string("no driver: ") + dlerror());
  return handle;
}

}  // namespace

void* driver_symbol(const char* name) {
  static void* const driver = open_driver();
  void* const found = dlsym(driver, name);
  if (!found) skip(std::string("this driver lacks [") + name + "]");
  return found;
}

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

void figure(const std::string& name, double value, const char* unit) {
  std::printf("figure %s %.6g %s\n", name.c_str(), value, unit);
  std::fflush(stdout);
}

void fail(const std::string& sentence) {
  std::printf("fail %s\n", sentence.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

void skip(const std::string& sentence) {
  std::printf("skip %s\n", sentence.c_str());
  std::fflush(stdout);
  std::_Exit(0);
}

void check(CUresult code, const char* call) {
  if (code != CUDA_SUCCESS)
    fail(std::string("[") + call + "] returns [" + std::to_string(static_cast<int>(code)) + "]");
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

CUdevice open_device() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(DRIVER(cuInit)(0), "cuInit");
  check(DRIVER(cuDeviceGet)(&device, 0), "cuDeviceGet");
  check(DRIVER(cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
  check(DRIVER(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  return device;
}

CUmodule load_kernels() {
  const char* path = std::getenv("MEASURE_KERNELS");
  if (!path || !*path) skip("there are no kernels: nvcc is needed to compile them");
  CUmodule module = nullptr;
  check(DRIVER(cuModuleLoad)(&module, path), "cuModuleLoad");
  return module;
}

CUfunction kernel(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  check(DRIVER(cuModuleGetFunction)(&function, module, name), "cuModuleGetFunction");
  return function;
}

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(DRIVER(cuDeviceGetAttribute)(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

Mapping map_memory(CUdevice device, size_t bytes) {
  Mapping made;
  made.bytes = bytes;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(DRIVER(cuMemAddressReserve)(&made.address, bytes, 0, 0, 0), "cuMemAddressReserve");
  double began = now_us();
  const CUresult code = DRIVER(cuMemCreate)(&made.handle, bytes, &prop, 0);
  if (code == CUDA_ERROR_OUT_OF_MEMORY)
    skip("the device has no [" + std::to_string(bytes >> 20) + "] MiB to give");
  check(code, "cuMemCreate");
  made.create_us = now_us() - began;
  began = now_us();
  check(DRIVER(cuMemMap)(made.address, bytes, 0, made.handle, 0), "cuMemMap");
  made.map_us = now_us() - began;
  began = now_us();
  check(DRIVER(cuMemSetAccess)(made.address, bytes, &access, 1), "cuMemSetAccess");
  made.access_us = now_us() - began;
  return made;
}

void unmap_memory(const Mapping& mapping) {
  check(DRIVER(cuMemUnmap)(mapping.address, mapping.bytes), "cuMemUnmap");
  check(DRIVER(cuMemRelease)(mapping.handle), "cuMemRelease");
  check(DRIVER(cuMemAddressFree)(mapping.address, mapping.bytes), "cuMemAddressFree");
}

}  // namespace measure
