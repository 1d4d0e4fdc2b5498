// Support of the generated mock_table.h: every function writes its name down and returns success.
#ifndef PYFT_BACKEND_MOCK_H_
#define PYFT_BACKEND_MOCK_H_

#include <array>
#include <mutex>
#include <string>
#include <utility>

#include "api/backend_table.h"

namespace pyft::backend::mock {

inline std::array<const char*, 1024>& names() {
  static std::array<const char*, 1024> all{};
  return all;
}

// What was called, in order. A server calls from its copying thread too, so a lock guards it.
class Calls {
 public:
  void add(const char* name) {
    const std::scoped_lock lock(mutex_);
    if (!names_.empty()) names_ += ' ';
    names_ += name;
  }
  // Names since the last look, joined by blanks.
  std::string take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(names_, {});
  }

 private:
  std::mutex mutex_;
  std::string names_;
};

// Never destroyed: a server's thread may call while the process exits.
inline Calls& calls() {
  static auto* const all = new Calls;
  return *all;
}

template <size_t kIndex, class Pointer>
struct Function;

template <size_t kIndex, class Result, class... Args>
struct Function<kIndex, Result (*)(Args...)> {
  static Result call(Args...) {
    calls().add(names()[kIndex]);
    return Result{};
  }
};

}  // namespace pyft::backend::mock

#endif  // PYFT_BACKEND_MOCK_H_
