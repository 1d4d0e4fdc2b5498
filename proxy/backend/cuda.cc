// Fills the table from the vendor's libraries. Compiled everywhere; not yet run on a real GPU.
#include <dlfcn.h>

#include "backend/backend.h"

namespace pyft::backend {
namespace {

constexpr const char* kFiles[] = {"libcudart.so.13", "libcuda.so.1", "libcublas.so.13",
                                  "libcublasLt.so.13", "libnccl.so.2"};
constexpr int kFileCount = 5;
static_assert(static_cast<int>(Library::nccl) == kFileCount - 1);

}  // namespace

bool load_cuda(Table* table, std::string* error) {
  void* handles[kFileCount] = {};
  for (int i = 0; i < kFileCount; ++i) {
    handles[i] = dlopen(kFiles[i], RTLD_NOW | RTLD_LOCAL);
    if (handles[i]) continue;
    *error = std::string("[") + kFiles[i] + "] does not load: " + dlerror();
    return false;
  }
  for_each_function(*table, [&handles](const char* name, Library library, void** slot) {
    if (library <= Library::nccl) *slot = dlsym(handles[static_cast<int>(library)], name);
  });
  return true;
}

}  // namespace pyft::backend
