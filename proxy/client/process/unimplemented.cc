#include "client/process/unimplemented.h"

#include <cstdlib>
#include <cstring>
#include <string>

#undef PYFT_API
#include "client/process/process.h"
#include "pyft/settings.h"

namespace pyft::client {

void unsupported(Api api, const std::string& why) {
  static std::atomic<bool> said[static_cast<size_t>(Api::kCount)];
  if (!said[static_cast<size_t>(api)].exchange(true)) unsupported_again(api, why);
}

void unsupported_again(Api api, const std::string& why) {
  say(std::string("[") + api_name(api) + "] is not supported" + (why.empty() ? "" : ": ") + why);
  if (settings::strict()) std::abort();
}

long unimplemented(Api api, long code) {
  const Entered entered(api);
  unsupported(api);
  return code;
}

long unimplemented_runtime(Api api, long code) {
  unimplemented(api, code);
  return done(static_cast<cudaError_t>(code));
}

const char* unimplemented_text(Api api) {
  unimplemented(api, 0);
  return "not supported by pyft";
}

}  // namespace pyft::client
