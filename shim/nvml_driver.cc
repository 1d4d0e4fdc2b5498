#include "nvml_driver.h"

#include <dlfcn.h>
#include <errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "pyft/settings.h"

namespace pyft::nvml {
namespace {

constexpr const char* kFolders[] = {"/usr/lib/x86_64-linux-gnu",
                                    "/usr/lib64",
                                    "/usr/lib",
                                    "/usr/lib/wsl/lib",
                                    "/usr/local/nvidia/lib64",
                                    "/usr/lib/x86_64-linux-gnu/nvidia/current"};

bool real_gpus() {
  return std::strncmp(settings::gpus(), "GPU-", 4) == 0;
}

// nvidia-smi wants the NVML of its own driver and nothing else.
bool vendors_tool() {
  return std::strncmp(program_invocation_short_name, "nvidia-smi", 10) == 0;
}

// By path, since the name alone is ours. With its own functions before ours, which have the same
// names: it calls them too.
void* open_in(const std::string& folder) {
  return dlopen((folder + "/libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
}

void* find_library() {
  if (const char* named = settings::nvml(); *named)
    return dlopen(named, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  std::string folders = settings::ld_library_path();
  for (size_t at = 0; at < folders.size();) {
    const size_t end = std::min(folders.find(':', at), folders.size());
    if (end > at)
      if (void* found = open_in(folders.substr(at, end - at))) return found;
    at = end + 1;
  }
  for (const char* folder : kFolders)
    if (void* found = open_in(folder)) return found;
  return nullptr;
}

void* library() {
  static void* const found = find_library();
  return found;
}

template <class Function>
Function* own(const char* name) {
  return library() ? reinterpret_cast<Function*>(dlsym(library(), name)) : nullptr;
}

std::string uuid_of(nvmlDevice_t device) {
  std::array<char, 96> text{};
  const auto ask = own<nvmlReturn_t(nvmlDevice_t, char*, unsigned)>("nvmlDeviceGetUUID");
  return ask && ask(device, text.data(), text.size()) == kSuccess ? text.data() : "";
}

// Place of a GPU in PYFT_GPUS, the UUIDs of the job's GPUs; -1: not there.
int place_of(const std::string& uuid) {
  const std::string all = settings::gpus();
  int number = 0;
  for (size_t at = 0; !uuid.empty() && at < all.size(); ++number) {
    const size_t end = std::min(all.find(',', at), all.size());
    if (all.compare(at, end - at, uuid) == 0) return number;
    at = end + 1;
  }
  return -1;
}

}  // namespace

Answers answers() {
  static const Answers chosen = [] {
    if (real_gpus() && library()) return Answers::kDriver;
    if (real_gpus() || !vendors_tool()) return Answers::kHere;
    return library() ? Answers::kUntouched : Answers::kNobody;
  }();
  return chosen;
}

void* driver_function(const char* name) {
  const bool asked = answers() == Answers::kDriver || answers() == Answers::kUntouched;
  return asked ? dlsym(library(), name) : nullptr;
}

int job_number(nvmlDevice_t device) {
  return place_of(uuid_of(device));
}

nvmlReturn_t device_of_job(unsigned number, nvmlDevice_t* device) {
  using Count = nvmlReturn_t(unsigned*);
  using ByIndex = nvmlReturn_t(unsigned, nvmlDevice_t*);
  const auto count = own<Count>("nvmlDeviceGetCount_v2");
  const auto by_index = own<ByIndex>("nvmlDeviceGetHandleByIndex_v2");
  unsigned devices = 0;
  if (!count || !by_index) return kFunctionNotFound;
  if (const nvmlReturn_t code = count(&devices)) return code;
  nvmlReturn_t failed = kNotFound;
  for (unsigned i = 0; i < devices; ++i) {
    nvmlDevice_t one = nullptr;
    if (const nvmlReturn_t code = by_index(i, &one)) {
      failed = code;  // such as a GPU that is lost
    } else if (job_number(one) == static_cast<int>(number)) {
      *device = one;
      return kSuccess;
    }
  }
  return failed;
}

nvmlReturn_t found(nvmlReturn_t code, const nvmlDevice_t* device) {
  if (code != kSuccess || answers() == Answers::kUntouched) return code;
  return job_number(*device) < 0 ? int{kNotFound} : code;
}

int not_forwarded() {
  if (answers() == Answers::kNobody) return kDriverNotLoaded;
  return answers() == Answers::kHere ? kNotSupported : kFunctionNotFound;
}

}  // namespace pyft::nvml
