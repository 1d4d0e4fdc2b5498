// Waiting for a condition in a test.
#ifndef PYFT_TESTS_COMES_H_
#define PYFT_TESTS_COMES_H_

#include <chrono>
#include <thread>

// Every wait: false after 30 s. Whether it came at all: a condition that passes, such as all ranks
// being in one epoch before they move on together, is not asked for again.
template <class Condition>
bool comes(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

#endif  // PYFT_TESTS_COMES_H_
