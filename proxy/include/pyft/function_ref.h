// A function that is called while the call which it is given to lasts, and not kept: two words, no
// copy, no allocation (std::function_ref of C++26). What is kept takes a std::function.
#ifndef PYFT_FUNCTION_REF_H_
#define PYFT_FUNCTION_REF_H_

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace pyft {

template <class Signature>
class FunctionRef;

template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  // Implicit, as for std::function. What is referred to has to outlive this.
  template <class Function>
    requires(!std::same_as<std::remove_cvref_t<Function>, FunctionRef> &&
             std::is_invocable_r_v<Result, Function&, Arguments...>)
  FunctionRef(Function&& function)  // NOLINT(google-explicit-constructor)
      : function_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* at, Arguments... arguments) -> Result {
          return std::invoke(*static_cast<std::remove_reference_t<Function>*>(at),
                             std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(function_, std::forward<Arguments>(arguments)...);
  }

 private:
  void* function_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace pyft

#endif  // PYFT_FUNCTION_REF_H_
