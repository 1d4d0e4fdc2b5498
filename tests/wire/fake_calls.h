// What the functions of a GPU library do that stands in for the real ones in the dispatch fuzzer:
// they give out objects, touch the memory they are handed, and fail now and then.
#ifndef PYFT_TESTS_WIRE_FAKE_CALLS_H_
#define PYFT_TESTS_WIRE_FAKE_CALLS_H_

#include <cstring>

#include "api/backend_table.h"
#include "fuzz.h"
#include "server/handlers/library.h"

namespace fuzz_backend {

inline Random& luck() {
  static Random random(1);
  return random;
}

// Nothing fails and nothing is unusual while it is true.
inline bool& calm() {
  static bool value = false;
  return value;
}

inline bool once_in(std::size_t n) {
  return !calm() && luck().once_in(n);
}

inline bool fails() {
  return once_in(16);
}

template <class Object>
Object new_object() {
  static std::uintptr_t last = 0x1000;
  return reinterpret_cast<Object>(last += 16);
}

// Reads every byte, for the address sanitizer. The program may have passed no array.
inline void look_at(const void* data, std::size_t bytes) {
  const auto* each = static_cast<const volatile unsigned char*>(data);
  for (std::size_t i = 0; each && i < bytes; ++i) static_cast<void>(each[i]);
}

inline void write_to(void* to, std::size_t bytes) {
  if (to) std::memset(to, 1, bytes);
}

// As long as it may be, its ends are enough. No memory: the server has not believed the size.
inline void work_in(void* memory, std::size_t bytes) {
  if (!memory || !bytes) return;
  write_to(memory, 1);
  write_to(static_cast<char*>(memory) + bytes - 1, 1);
}

inline void make_object(void* out) {
  const auto object = new_object<void*>();
  std::memcpy(out, &object, sizeof object);
}

template <class Pointer>
struct Flaky;
template <class Result, class... Args>
struct Flaky<Result (*)(Args...)> {
  static Result call(Args...) { return fails() ? static_cast<Result>(1) : Result{}; }
};

// Its first argument is where the new object goes.
template <class Pointer>
struct Creation;
template <class Result, class Object, class... Args>
struct Creation<Result (*)(Object*, Args...)> {
  static Result call(Object* out, Args...) {
    if (fails()) return static_cast<Result>(1);
    *out = new_object<Object>();
    return Result{};
  }
};

// Its first argument is a struct that it fills.
template <class Pointer>
struct Filling;
template <class Result, class Value, class... Args>
struct Filling<Result (*)(Value*, Args...)> {
  static Result call(Value* out, Args...) {
    if (fails()) return static_cast<Result>(1);
    write_to(out, sizeof *out);
    return Result{};
  }
};

// Functions for all commands that are generated, made from the records (tools/gen/emit_seeds.py).
void set_fakes(pyft::backend::Table& table);

}  // namespace fuzz_backend

#endif  // PYFT_TESTS_WIRE_FAKE_CALLS_H_
