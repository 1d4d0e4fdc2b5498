#include <algorithm>
#include <string_view>

#include "server/handlers/handlers.h"

namespace pyft::server {

// How many kernels the module has, and a piece of the name of one of them.
Status do_cuModuleEnumerateFunctions(Session& session, const EntryHeader& header,
                                     const cmd::cuModuleEnumerateFunctions& c, Body, Body) {
  constexpr size_t kPieceBytes = 1920;
  CUmodule module;
  if (!resolve_module(session, c.module, &module)) return bad_handle(c.module);
  const backend::Table& api = session.backend();
  if (!api.cuModuleGetFunctionCount || !api.cuModuleEnumerateFunctions || !api.cuFuncGetName)
    return missing(session, header, "cuModuleEnumerateFunctions", CUDA_ERROR_NOT_SUPPORTED);
  unsigned count = 0;
  int code = api.cuModuleGetFunctionCount(&count, module);
  std::vector<CUfunction> functions(count);
  std::string_view name;
  if (code == 0 && c.index < count) {
    const char* text = nullptr;
    code = api.cuModuleEnumerateFunctions(functions.data(), count, module);
    if (code == 0) code = api.cuFuncGetName(&text, functions[c.index]);
    if (code == 0 && text) name = text;
  }
  const uint64_t values[] = {count, name.size()};
  const std::string_view piece =
      name.substr(std::min<size_t>(c.from, name.size())).substr(0, kPieceBytes);
  return finish(session, header, "cuModuleEnumerateFunctions", Domain::kCuda, code, values, 2,
                std::as_bytes(std::span(piece)));
}

}  // namespace pyft::server
