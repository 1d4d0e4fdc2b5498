// The driver's NVML behind ours: where the job has real GPUs, it answers, and only the numbers of
// GPUs are the job's. Its handles go to the program as they are.
#ifndef PYFT_SHIM_NVML_DRIVER_H_
#define PYFT_SHIM_NVML_DRIVER_H_

#define NVML_API extern "C" __attribute__((visibility("default")))

namespace pyft::nvml {

using nvmlReturn_t = int;
using nvmlDevice_t = struct Device*;
struct nvmlMemory_t {
  unsigned long long total, free, used;
};
enum : int {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kFunctionNotFound = 13,
};

enum class Answers {
  kHere,       // no real GPU: what frameworks ask, and "not supported" for the rest
  kDriver,     // the driver's, with the job's numbers
  kUntouched,  // the driver's as they are: NVIDIA's own tool beside soft GPUs
  kNobody,     // NVIDIA's own tool without a driver: what it would hear without us
};
Answers answers();

// A function of the driver's NVML; nullptr: it has none, or its answers are not asked for.
void* driver_function(const char* name);

template <class Function>
Function* driver(Function*, const char* name) {
  return reinterpret_cast<Function*>(driver_function(name));
}

// The driver's answers as they are, for its own tool beside soft GPUs.
template <class Function>
Function* untouched(Function* function, const char* name) {
  return answers() == Answers::kUntouched ? driver(function, name) : nullptr;
}

// Number in the job of a GPU of the driver; -1: it is not the job's.
int job_number(nvmlDevice_t device);
// The GPU with a number of the job.
nvmlReturn_t device_of_job(unsigned number, nvmlDevice_t* device);
// What is answered for a device that was found by name: one of another job is not there.
nvmlReturn_t found(nvmlReturn_t code, const nvmlDevice_t* device);

// The answer of a function that is only forwarded, where it is not.
int not_forwarded();

}  // namespace pyft::nvml

// Inside a function that is answered here: asks the driver instead where it answers.
#define ASK_DRIVER(function, ...)                                                               \
  do {                                                                                          \
    if (const auto asked = pyft::nvml::driver(&function, #function)) return asked(__VA_ARGS__); \
  } while (0)

// The same of the driver's answers as they are.
#define ASK_UNTOUCHED(function, ...)                                                               \
  do {                                                                                             \
    if (const auto asked = pyft::nvml::untouched(&function, #function)) return asked(__VA_ARGS__); \
  } while (0)

// A function that is only forwarded. Their arguments, eight at most, are numbers and addresses, and
// so is what they return: so they are passed on, whatever they mean.
#define FORWARD_TO_DRIVER(function)                                                        \
  NVML_API long function(long a, long b, long c, long d, long e, long f, long g, long h) { \
    using Any = long(long, long, long, long, long, long, long, long);                      \
    static Any* const to = reinterpret_cast<Any*>(pyft::nvml::driver_function(#function)); \
    return to ? to(a, b, c, d, e, f, g, h) : pyft::nvml::not_forwarded();                  \
  }

#endif  // PYFT_SHIM_NVML_DRIVER_H_
