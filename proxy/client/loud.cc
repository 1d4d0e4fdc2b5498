#include "client/loud.h"

#include <cstdlib>
#include <cstring>
#include <string>

#undef PYFT_API
#include "client/process.h"

namespace pyft::client {

void unsupported(Api api, const std::string& why) {
  static std::atomic<bool> said[static_cast<size_t>(Api::kCount)];
  if (!said[static_cast<size_t>(api)].exchange(true)) unsupported_again(api, why);
}

void unsupported_again(Api api, const std::string& why) {
  say(std::string("[") + api_name(api) + "] is not supported" + (why.empty() ? "" : ": ") + why);
  const char* strict = std::getenv("PYFT_STRICT");
  if (strict && std::strcmp(strict, "1") == 0) std::abort();
}

long loud(Api api, long code) {
  enter(api);
  unsupported(api);
  return code;
}

long loud_runtime(Api api, long code) {
  loud(api, code);
  return done(static_cast<cudaError_t>(code));
}

const char* loud_text(Api api) {
  loud(api, 0);
  return "not supported by pyft";
}

}  // namespace pyft::client
