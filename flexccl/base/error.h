// The one exception type of flexccl: a result code of NCCL and a full sentence. It never leaves the
// library: api/ turns it into a return value and keeps the sentence for ncclGetLastError.
#ifndef FLEXCCL_BASE_ERROR_H_
#define FLEXCCL_BASE_ERROR_H_

#include <sstream>
#include <stdexcept>
#include <string>

#include "flexccl.h"

namespace flexccl {

struct Error : std::runtime_error {
  Error(ncclResult_t result, const std::string& sentence)
      : std::runtime_error(sentence), code(result) {}
  ncclResult_t code;
};

template <class... Parts>
[[noreturn]] void fail(ncclResult_t code, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(code, text.str());
}

}  // namespace flexccl

#endif  // FLEXCCL_BASE_ERROR_H_
