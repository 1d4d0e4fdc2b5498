#include "backend/cupti.h"

#include <dlfcn.h>

#include <cstring>

#include "pyft/settings.h"

namespace pyft::backend {
namespace {

const char* vendors_file() {
  return settings::cuda_release() == settings::CudaRelease::k12 ? "libcupti.so.12"
                                                                : "libcupti.so.13";
}

template <class Function>
void find(void* handle, const char* name, Function* out, std::string* why) {
  *out = reinterpret_cast<Function>(dlsym(handle, name));
  if (!*out && why->empty()) *why = std::string("it lacks [") + name + "]";
}

std::string load_from(const char* file, Cupti* out) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return std::string("[") + file + "] does not load: " + dlerror();
  std::string why;
  find(handle, "cuptiActivityRegisterCallbacks", &out->register_callbacks, &why);
  find(handle, "cuptiActivityEnable", &out->enable, &why);
  find(handle, "cuptiActivityDisable", &out->disable, &why);
  find(handle, "cuptiActivityPushExternalCorrelationId", &out->push_id, &why);
  find(handle, "cuptiActivityPopExternalCorrelationId", &out->pop_id, &why);
  find(handle, "cuptiActivityFlushAll", &out->flush_all, &why);
  find(handle, "cuptiActivityGetNextRecord", &out->next_record, &why);
  find(handle, "cuptiActivityGetNumDroppedRecords", &out->dropped, &why);
  return why;
}

}  // namespace

const std::string& load_cupti(const char* library, Cupti* out) {
  static Cupti loaded;
  const bool soft = library && *library && std::strcmp(library, "cuda") != 0;
  static const std::string why = load_from(soft ? library : vendors_file(), &loaded);
  *out = loaded;
  return why;
}

}  // namespace pyft::backend
