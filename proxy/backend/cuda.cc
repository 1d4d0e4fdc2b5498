// Fills the table from the vendor's libraries. Compiled and filled in tests; not yet run on a GPU.
//
// The driver and the runtime must be there. Any other library that does not load is an error of the
// first call that needs it: the sentence is kept until then. cuDNN and its like are loaded by the
// first program that uses them, because that takes up to a second.
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

#include "backend/cuda_libraries.h"
#include "backend/device_properties.h"
#include "backend/repair.h"
#include "pyft/settings.h"

namespace pyft::backend {
namespace {

constexpr const char* kFiles[] = {"libcudart.so.13",   "libcuda.so.1",    "libcublas.so.13",
                                  "libcublasLt.so.13", "libnccl.so.2",    "libcudnn.so.9",
                                  "libcufft.so.12",    "libcurand.so.10", "libcusolver.so.12",
                                  "libcusparse.so.12"};
constexpr const char* kFiles12[] = {"libcudart.so.12",   "libcuda.so.1",    "libcublas.so.12",
                                    "libcublasLt.so.12", "libnccl.so.2",    "libcudnn.so.9",
                                    "libcufft.so.11",    "libcurand.so.10", "libcusolver.so.11",
                                    "libcusparse.so.12"};
static_assert(std::size(kFiles) == kLibraryCount && std::size(kFiles12) == kLibraryCount);
static_assert(static_cast<int>(Library::cusparse) == kLibraryCount - 1);

// The oldest driver for a release, whatever its second number. What one of CUDA 12.0 lacks of the
// table is done without, or named.
struct Oldest {
  int version;
  const char* text;
};
constexpr Oldest kOldest = {13000, "580"}, kOldest12 = {12000, "525"};

Table* filled = nullptr;  // the one table of a server
std::string failures[kLibraryCount];

std::string fill(Table* table, Library wanted) {
  std::string& failure = failures[static_cast<int>(wanted)];
  failure = fill_from(library_file(wanted), table, wanted);
  return failure;
}

// What the runtime linker's search would not find: beside this program.
std::string beside(const char* file) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, length > 0 ? static_cast<size_t>(length) : 0);
  return self.substr(0, self.find_last_of('/') + 1) + file;
}

// flexccl instead of NCCL, which refuses two ranks on one GPU and cannot repair a communicator: by
// way of host memory. Empty, or what is missing.
std::string fill_flexccl(Table* table) {
  void* const flexccl = dlopen(beside("libflexccl.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const staged =
      flexccl ? dlopen(beside("libpyft_collectives.so").c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!staged) return std::string("the library of collectives does not load: ") + dlerror();
  const auto use = reinterpret_cast<int (*)(void*)>(dlsym(staged, "pyft_collectives_use_driver"));
  void* const driver = dlopen(library_file(Library::cuda), RTLD_NOW | RTLD_LOCAL);
  if (!use || !driver || use(driver) != 0) return "the driver lacks what staged collectives need";
  for_each_function(*table, [=](const char* name, Library library, void** slot) {
    if (library != Library::nccl) return;
    *slot = dlsym(staged, (std::string("pyft_staged_") + name).c_str());
    if (!*slot) *slot = dlsym(staged, name);
  });
  collectives_are_flexccl(flexccl);
  return {};
}

bool is_cuda_12() {
  return settings::cuda_release() == settings::CudaRelease::k12;
}

// What an older driver does not run: the runtime refuses every call, with a code that says less.
std::string too_old() {
  void* const driver = dlopen(library_file(Library::cuda), RTLD_NOW | RTLD_LOCAL);
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  const Oldest& oldest = is_cuda_12() ? kOldest12 : kOldest;
  int version = 0;
  if (!get || get(&version) || version >= oldest.version) return {};
  return "the driver is for CUDA [" + std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10) + "], and PyTorch's libraries are of CUDA [" +
         std::to_string(oldest.version / 1000) + "]: install driver " + oldest.text + " or newer";
}

cudaError_t (*properties_12)(void*, int) = nullptr;  // of CUDA 12's runtime

cudaError_t properties_as_13(cudaDeviceProp* out, int device) {
  alignas(8) unsigned char bytes[kDeviceProperties12Bytes] = {};
  const cudaError_t code = properties_12(bytes, device);
  if (code == cudaSuccess) device_properties_of_12(bytes, out);
  return code;
}

// The one function of the table whose parameters CUDA 12 has otherwise. Empty, or what is missing.
std::string adapt_to_cuda_12(Table* table) {
  void* const runtime = dlopen(library_file(Library::cudart), RTLD_NOW | RTLD_LOCAL);
  properties_12 = reinterpret_cast<cudaError_t (*)(void*, int)>(
      runtime ? dlsym(runtime, "cudaGetDeviceProperties_v2") : nullptr);
  if (!properties_12) return "CUDA 12's runtime lacks [cudaGetDeviceProperties_v2]";
  table->cudaGetDeviceProperties = properties_as_13;
  return {};
}

std::string open_library(const char* name) {
  for (int i = static_cast<int>(Library::nccl) + 1; i < kLibraryCount; ++i)
    if (std::strcmp(name, kObjectLibraryNames[i - static_cast<int>(Library::nccl) - 1]) == 0)
      return fill(filled, static_cast<Library>(i));
  return std::string("there is no library [") + name + "]";
}

std::string why_missing(const char* function) {
  std::string why;
  for_each_function(*filled, [&](const char* name, Library library, void**) {
    if (std::strcmp(name, function) != 0) return;
    why = failures[static_cast<int>(library)];
    if (why.empty()) why = std::string("[") + library_file(library) + "] lacks it";
  });
  return why;
}

}  // namespace

const char* library_file(Library library) {
  return (is_cuda_12() ? kFiles12 : kFiles)[static_cast<int>(library)];
}

std::string fill_from(const char* file, Table* table, Library wanted) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return std::string("[") + file + "] does not load: " + dlerror();
  for_each_function(*table, [=](const char* name, Library library, void** slot) {
    if (library == wanted) *slot = dlsym(handle, name);
  });
  return {};
}

bool load_cuda(Table* table, std::string* error) {
  filled = table;
  table->open_library = open_library;
  table->why_missing = why_missing;
  if (const std::string why = fill(table, Library::cuda); !why.empty()) {
    *error = "no CUDA driver: use soft:N (" + why + ")";
    return false;
  }
  if (*error = too_old(); !error->empty()) return false;
  *error = fill(table, Library::cudart);
  if (error->empty() && is_cuda_12()) *error = adapt_to_cuda_12(table);
  for (const Library library : {Library::cublas, Library::cublasLt}) fill(table, library);
  if (settings::collectives() != settings::Collectives::kFlexccl)
    fill(table, Library::nccl);
  else if (error->empty())
    *error = fill_flexccl(table);
  return error->empty();
}

}  // namespace pyft::backend
