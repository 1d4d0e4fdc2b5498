// The whole C++ test framework: CHECK macros that print both sides and a registry run by main().
#ifndef PYFT_TESTS_CHECK_H_
#define PYFT_TESTS_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace check {

inline int& failures() {
  static int count = 0;
  return count;
}

inline std::vector<std::pair<std::string, std::function<void()>>>& tests() {
  static std::vector<std::pair<std::string, std::function<void()>>> all;
  return all;
}

struct Register {
  Register(const char* name, std::function<void()> body) { tests().emplace_back(name, body); }
};

template <class A, class B>
void equal(const A& a, const B& b, const char* what, const char* file, int line) {
  if (a == b) return;
  ++failures();
  std::cerr << file << ":" << line << ": CHECK_EQ(" << what << ") failed: [" << a << "] != [" << b
            << "]\n";
}

inline void that(bool ok, const char* what, const char* file, int line) {
  if (ok) return;
  ++failures();
  std::cerr << file << ":" << line << ": CHECK(" << what << ") failed\n";
}

// Runs every test whose name contains argv[1] (all without it); exit status 1 on any failure.
inline int run_all(int argc, char** argv) {
  int passed = 0, failed = 0;
  for (auto& [name, body] : tests()) {
    if (argc > 1 && name.find(argv[1]) == std::string::npos) continue;
    const int before = failures();
    body();
    const bool ok = failures() == before;
    std::cout << (ok ? "ok   " : "FAIL ") << name << "\n";
    ok ? ++passed : ++failed;
  }
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed || !passed ? 1 : 0;
}

}  // namespace check

#define CHECK(cond) check::that((cond), #cond, __FILE__, __LINE__)
#define CHECK_EQ(a, b) check::equal((a), (b), #a ", " #b, __FILE__, __LINE__)
#define TEST(name)                                            \
  static void test_##name();                                  \
  static check::Register register_##name(#name, test_##name); \
  static void test_##name()
#define CHECK_MAIN                     \
  int main(int argc, char** argv) {    \
    return check::run_all(argc, argv); \
  }

#endif  // PYFT_TESTS_CHECK_H_
