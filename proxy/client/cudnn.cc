#include "client/process.h"

using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API size_t cudnnGetVersion() {
  enter(pyft::Api::cudnnGetVersion);
  return 0;
}
