// Fills the table from libsoftgpu.so, which exports all vendor symbols from one library.
#include <dlfcn.h>

#include <cstring>

#include "api/object_types.h"
#include "backend/backend.h"
#include "backend/repair.h"
#include "pyft/log.h"
#include "softgpu.h"

namespace pyft::backend {

bool load(const char* library, Backend* out, std::string* error) {
  const bool soft = library && *library && std::strcmp(library, "cuda") != 0;
  out->kind = soft ? Kind::kSoft : Kind::kVendor;
  return soft ? load_soft(library, &out->table, &out->extras, error)
              : load_cuda(&out->table, error);
}

namespace {

// The library of collectives lies beside the soft GPU and is told how to put work into its streams.
bool load_collectives(const std::string& softgpu, void* handle, void** out, std::string* error) {
  const std::string folder = softgpu.substr(0, softgpu.find_last_of('/') + 1);
  const std::string path = folder + "libpyft_collectives.so";
  // Loaded first, so that the second finds it by its name, whatever folders links lead to.
  void* const flexccl = dlopen((folder + "libflexccl.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  *out = flexccl ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!*out) {
    *error = std::string("the library of collectives does not load: ") + dlerror();
    return false;
  }
  const auto use = reinterpret_cast<int (*)(void*)>(dlsym(*out, "pyft_collectives_use"));
  if (use && use(handle) == 0) return collectives_are_flexccl(flexccl), true;
  *error = "the library of collectives [" + path + "] does not fit the soft GPU [" + softgpu + "]";
  return false;
}

// Whether the soft GPU has any function of a library.
bool served[kLibraryCount];

std::string open_library(const char* name) {
  for (int i = static_cast<int>(Library::nccl) + 1; i < kLibraryCount; ++i)
    if (served[i] &&
        std::strcmp(name, kObjectLibraryNames[i - static_cast<int>(Library::nccl) - 1]) == 0)
      return {};
  return std::string("a soft GPU has no [") + name + "]";
}

}  // namespace

bool load_soft(const char* path, Table* table, Extras* extras, std::string* error) {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    *error = std::string("the soft GPU does not load: ") + dlerror();
    return false;
  }
  if (auto* const set =
          reinterpret_cast<decltype(&softgpu_set_log)>(dlsym(handle, "softgpu_set_log")))
    set([](softgpu_log_level level, const char* sentence) {
      const bool again = level == SOFTGPU_LOG_ERROR && !log::is_news(sentence);
      log::write_line<log::Module::kSoftgpu>(again ? static_cast<int>(log::Level::kDebug) : level,
                                             sentence);
    });
  void* collectives = nullptr;
  if (!load_collectives(path, handle, &collectives, error)) return false;
  const auto is_stub =
      reinterpret_cast<decltype(&softgpu_is_stub)>(dlsym(handle, "softgpu_is_stub"));
  for_each_function(*table, [=](const char* name, Library library, void** slot) {
    // Stubs name themselves for programs. Of the libraries after NCCL they are left out here, so
    // that the client names them to its program.
    if (library > Library::nccl && (!is_stub || is_stub(name))) return;
    // libpyft_collectives defines none of NCCL's names: dlsym() also looks in what a library needs,
    // and it needs libflexccl, which has them.
    *slot = dlsym(library == Library::nccl ? collectives : handle, name);
    if (*slot) served[static_cast<int>(library)] = true;
  });
  table->open_library = open_library;
  extras->publish = reinterpret_cast<decltype(&softgpu_publish)>(dlsym(handle, "softgpu_publish"));
  extras->work = reinterpret_cast<decltype(&softgpu_work)>(dlsym(handle, "softgpu_work"));
  extras->view = reinterpret_cast<decltype(&softgpu_view)>(dlsym(handle, "softgpu_view"));
  extras->untouched =
      reinterpret_cast<decltype(&softgpu_untouched)>(dlsym(handle, "softgpu_untouched"));
  extras->module_variables = reinterpret_cast<decltype(&softgpu_module_variables)>(
      dlsym(handle, "softgpu_module_variables"));
  extras->kernel_heap =
      reinterpret_cast<decltype(&softgpu_kernel_heap)>(dlsym(handle, "softgpu_kernel_heap"));
  extras->place = reinterpret_cast<decltype(&softgpu_place)>(dlsym(handle, "softgpu_place"));
  return true;
}

}  // namespace pyft::backend
