#include "nccl_engine/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

namespace flexccl::nccl_engine {
namespace {

constexpr int kOldest = 21800;  // communicators that do not block, ncclCommSplit

template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
}

Library load() {
  const char* chosen = std::getenv("FLEXCCL_NCCL_LIBRARY");
  const char* path = chosen ? chosen : "libnccl.so.2";
  // Deep binding: NCCL's calls to itself must not end in this library, which has the same names.
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!handle) fail(ncclSystemError, "flexccl: NCCL cannot be loaded: ", dlerror());
  Library found;
#define FLEXCCL_NCCL_FIND(name) find(handle, #name, found.name);
  FLEXCCL_NCCL_NEEDED(FLEXCCL_NCCL_FIND)
  FLEXCCL_NCCL_OPTIONAL(FLEXCCL_NCCL_FIND)
  FLEXCCL_NCCL_FIND(ncclCommRevoke)
  FLEXCCL_NCCL_FIND(ncclCommGetUniqueId)
  FLEXCCL_NCCL_FIND(ncclCommGrow)
#undef FLEXCCL_NCCL_FIND
#define FLEXCCL_NCCL_MUST(name) \
  if (!found.name) fail(ncclSystemError, "flexccl: the NCCL library [", path, "] has no " #name);
  FLEXCCL_NCCL_NEEDED(FLEXCCL_NCCL_MUST)
#undef FLEXCCL_NCCL_MUST
  if (const ncclResult_t code = found.ncclGetVersion(&found.version); code != ncclSuccess)
    fail(code, "flexccl: ncclGetVersion of [", path, "] failed with [", int(code), "]");
  if (found.version < kOldest)
    fail(ncclSystemError, "flexccl: NCCL [", found.version_text(), "] is older than [2.18]");
  return found;
}

}  // namespace

std::string Library::version_text() const {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

const Library& library() {
  static std::mutex mutex;
  static bool loaded = false;
  static Library only;
  const std::scoped_lock lock(mutex);
  if (!loaded) only = load(), loaded = true;
  return only;
}

}  // namespace flexccl::nccl_engine
