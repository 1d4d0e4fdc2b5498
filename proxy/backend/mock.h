// Support of the generated mock_table.h: every function writes its name down and returns success.
#ifndef PYFT_BACKEND_MOCK_H_
#define PYFT_BACKEND_MOCK_H_

#include <array>
#include <string>
#include <vector>

#include "api/backend_table.h"

namespace pyft::backend::mock {

inline std::array<const char*, 1024>& names() {
  static std::array<const char*, 1024> all{};
  return all;
}

// Names in the order of the calls. Not thread-safe: one dispatch thread per test.
inline std::vector<std::string>& calls() {
  static std::vector<std::string> all;
  return all;
}

template <size_t kIndex, class Pointer>
struct Function;

template <size_t kIndex, class Result, class... Args>
struct Function<kIndex, Result (*)(Args...)> {
  static Result call(Args...) {
    calls().push_back(names()[kIndex]);
    return Result{};
  }
};

}  // namespace pyft::backend::mock

#endif  // PYFT_BACKEND_MOCK_H_
