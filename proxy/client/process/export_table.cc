// Undocumented tables of the driver, which a CUDA runtime that is linked into a library asks for
// first of all: the place where code shows itself whose calls never come here (H4).
#include <dlfcn.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "client/process/process.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

// These look for settings of the driver's cache in a table, and do without.
constexpr const char* kDoWithout[] = {"libnvrtc.so", "libnvJitLink.so", "libnvptxcompiler"};

std::string library_at(const void* code) {
  Dl_info info{};
  return dladdr(code, &info) && info.dli_fname ? info.dli_fname : "a library";
}

void name_library(const std::string& path) {
  static std::mutex mutex;
  static std::set<std::string> named;
  const bool harmless =
      std::any_of(std::begin(kDoWithout), std::end(kDoWithout),
                  [&](const char* name) { return path.find(name) != std::string::npos; });
  const std::lock_guard lock(mutex);
  if (harmless || !named.insert(path).second) return;
  unsupported_again(Api::cuGetExportTable,
                    "[" + path +
                        "] has a CUDA runtime of its own inside, whose calls cannot be seen; " +
                        "build it with the shared one (nvcc -cudart shared)");
}

}  // namespace

PYFT_API CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  const Entered entered(Api::cuGetExportTable);
  if (!ppExportTable || !pExportTableId) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  name_library(library_at(__builtin_return_address(0)));
  return CUDA_ERROR_NOT_SUPPORTED;
}
