// What the measurements share: the driver's functions by name, so that the programs build without
// a driver, and the lines they print.
//
// A line is one of
//   figure NAME VALUE UNIT     what was measured
//   fail SENTENCE              a rule of docs/concepts or ARCHITECTURE.md does not hold here
//   skip SENTENCE              it cannot be measured on this machine
// A program that prints neither fail nor skip has passed. Anything else on a line is for people.
#ifndef TOOLS_GPU_MEASURE_DRIVER_H_
#define TOOLS_GPU_MEASURE_DRIVER_H_

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace measure {

// MEASURE_DRIVER names the library, libcuda.so.1 if it is not set.
void* driver_symbol(const char* name);

#define MEASURE_TEXT_(name) #name
#define MEASURE_TEXT(name) MEASURE_TEXT_(name)
// DRIVER(cuMemCreate)(...): the header's macros choose the version.
#define DRIVER(name) \
  (*reinterpret_cast<decltype(&name)>(measure::driver_symbol(MEASURE_TEXT(name))))

double now_us();
void figure(const std::string& name, double value, const char* unit);
[[noreturn]] void fail(const std::string& sentence);
[[noreturn]] void skip(const std::string& sentence);
// Fails with the name of the call unless the code is zero.
void check(CUresult code, const char* call);

double median(std::vector<double> values);

// The first device, with its primary context current in this thread.
CUdevice open_device();
// The kernels of kernels.cu, compiled beside the program. Skips when there are none.
CUmodule load_kernels();
CUfunction kernel(CUmodule module, const char* name);
int attribute(CUdevice device, CUdevice_attribute which);

// `bytes` of device memory mapped at `wanted` (0: anywhere), readable and writable.
struct Mapping {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUmemGenericAllocationHandle handle{};
  double create_us = 0, map_us = 0, access_us = 0;
};
Mapping map_memory(CUdevice device, size_t bytes);
void unmap_memory(const Mapping& mapping);

// The measurements: `argument` is the second word of the command line, or empty.
void window(const std::string& argument);
void mapping(const std::string& argument);
void hold(const std::string& argument);
void registered(const std::string& argument);
void words(const std::string& argument);
void modules(const std::string& argument);
void phases(const std::string& argument);
void faults(const std::string& argument);
void capture(const std::string& argument);
void digest(const std::string& argument);

}  // namespace measure

#endif  // TOOLS_GPU_MEASURE_DRIVER_H_
