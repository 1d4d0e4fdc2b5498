// Fills the table from libsoftgpu.so, which exports all vendor symbols from one library.
#include <dlfcn.h>

#include <cstring>

#include "backend/backend.h"

namespace pyft::backend {

bool load(const char* library, Table* table, std::string* error) {
  const bool soft = library && *library && std::strcmp(library, "cuda") != 0;
  return soft ? load_soft(library, table, error) : load_cuda(table, error);
}

bool load_soft(const char* path, Table* table, std::string* error) {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    *error = std::string("the soft GPU does not load: ") + dlerror();
    return false;
  }
  for_each_function(
      *table, [handle](const char* name, Library, void** slot) { *slot = dlsym(handle, name); });
  return true;
}

}  // namespace pyft::backend
