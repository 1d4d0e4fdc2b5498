// Fills the table from libsoftgpu.so, which exports all vendor symbols from one library.
#include <dlfcn.h>

#include <cstring>

#include "backend/backend.h"
#include "softgpu.h"

namespace pyft::backend {

bool load(const char* library, Table* table, Extras* extras, std::string* error) {
  const bool soft = library && *library && std::strcmp(library, "cuda") != 0;
  return soft ? load_soft(library, table, extras, error) : load_cuda(table, error);
}

bool load_soft(const char* path, Table* table, Extras* extras, std::string* error) {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    *error = std::string("the soft GPU does not load: ") + dlerror();
    return false;
  }
  for_each_function(
      *table, [handle](const char* name, Library, void** slot) { *slot = dlsym(handle, name); });
  extras->publish = reinterpret_cast<decltype(&softgpu_publish)>(dlsym(handle, "softgpu_publish"));
  extras->work = reinterpret_cast<decltype(&softgpu_work)>(dlsym(handle, "softgpu_work"));
  return true;
}

}  // namespace pyft::backend
