// For the generated library_check.cc: how the vendor's type and ours are passed to a function.
#ifndef PYFT_TESTS_WIRE_LIBRARY_CHECK_H_
#define PYFT_TESTS_WIRE_LIBRARY_CHECK_H_

#include <type_traits>

template <class Theirs, class Ours>
constexpr bool same_class() {
  if constexpr (std::is_pointer_v<Theirs> || std::is_pointer_v<Ours>)
    return std::is_pointer_v<Theirs> && std::is_pointer_v<Ours>;
  else if constexpr (std::is_floating_point_v<Theirs> || std::is_floating_point_v<Ours>)
    return std::is_same_v<std::remove_cv_t<Theirs>, Ours>;
  else
    return (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>) && sizeof(Theirs) == sizeof(Ours);
}

#endif  // PYFT_TESTS_WIRE_LIBRARY_CHECK_H_
