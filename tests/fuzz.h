// A small mutational fuzzer: from real messages, changed at random, for some seconds. The seed is
// printed and accepted back; what it looks for is what the sanitizers and the checks report.
// Messages go to the descriptor: a fuzzer may have silenced the stream, and with it what it tests.
#ifndef PYFT_TESTS_FUZZ_H_
#define PYFT_TESTS_FUZZ_H_

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1du;
  }
  std::size_t below(std::size_t limit) { return limit ? next() % limit : 0; }
  bool once_in(std::size_t n) { return below(n) == 0; }
  // Small, huge, and close to powers of two: where arithmetic breaks.
  std::uint64_t interesting() {
    switch (below(4)) {
      case 0:
        return below(20);
      case 1:
        return 0 - std::uint64_t{below(20)};
      case 2:
        return (std::uint64_t{1} << below(64)) + below(5) - 2;
      default:
        return next();
    }
  }

 private:
  std::uint64_t state_;
};

using Message = std::vector<unsigned char>;

template <class T>
Message message_of(const T& value) {
  Message bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
template <class T>
T value_of(const Message& bytes) {
  T value{};
  std::memcpy(static_cast<void*>(&value), bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

// Changes some bytes in place, at most `changes` times.
inline void scramble(Random& random, Message* bytes, std::size_t changes = 4) {
  for (std::size_t n = random.below(changes) + 1; n && !bytes->empty(); --n) {
    const std::size_t at = random.below(bytes->size());
    if (random.once_in(2)) {
      (*bytes)[at] ^= static_cast<unsigned char>(1u << random.below(8));
    } else {
      const std::uint64_t value = random.interesting();
      const std::size_t size =
          std::min<std::size_t>(std::size_t{1} << random.below(4), bytes->size() - at);
      std::memcpy(bytes->data() + at, &value, size);
    }
  }
}

// Also the length: cut off, repeated, or with noise behind it.
inline void mutate(Random& random, Message* bytes) {
  scramble(random, bytes);
  if (random.once_in(4)) bytes->resize(random.below(bytes->size() + 1));
  if (random.once_in(8)) bytes->insert(bytes->end(), bytes->begin(), bytes->end());
  for (std::size_t n = random.once_in(8) ? random.below(200) : 0; n; --n)
    bytes->push_back(static_cast<unsigned char>(random.next()));
}

inline std::uint64_t& fuzz_seed() {
  static std::uint64_t seed = 1;
  return seed;
}
inline void say_fuzz_seed() {
  dprintf(
      STDERR_FILENO, "fuzz: the trial with seed [%llu] failed: repeat it with arguments 0 %llu\n",
      static_cast<unsigned long long>(fuzz_seed()), static_cast<unsigned long long>(fuzz_seed()));
}
// There under a sanitizer only.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

// Calls `trial(random)` until `enough(seconds)` says so of the time so far. Each trial has a seed
// of its own: `fuzz 0 SEED` repeats one.
template <class Trial, class Enough>
int fuzz_until(int argc, char** argv, Trial trial, Enough enough) {
  std::uint64_t& seed = fuzz_seed();
  if (argc > 2) seed = std::strtoull(argv[2], nullptr, 0);
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(say_fuzz_seed);
  std::signal(SIGABRT, [](int) { say_fuzz_seed(); });  // abort() ends the process all the same
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::uint64_t trials = 0;
  do {
    const auto before = elapsed();
    Random random(seed);
    trial(random);
    ++trials, ++seed;
    // No trial waits for anything longer than the deadlines that it sets.
    if (elapsed() - before > 20) {
      dprintf(STDERR_FILENO, "fuzz: the trial with seed [%llu] took [%.1f] s\n",
              static_cast<unsigned long long>(seed - 1), elapsed() - before);
      return 1;
    }
  } while (!enough(elapsed()));
  std::printf("fuzz: [%llu] trials up to seed [%llu] in [%.1f] s\n",
              static_cast<unsigned long long>(trials), static_cast<unsigned long long>(seed - 1),
              elapsed());
  return trials ? 0 : 1;
}

// The same until the time given on the command line is over.
template <class Trial>
int fuzz_main(int argc, char** argv, Trial trial) {
  const double limit = argc > 1 ? std::atof(argv[1]) : 5;
  return fuzz_until(argc, argv, trial, [limit](double seconds) { return seconds >= limit; });
}

#define FUZZ_CHECK(condition)                                                                \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      dprintf(STDERR_FILENO, "%s:%d: [%s] does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (0)

#endif  // PYFT_TESTS_FUZZ_H_
