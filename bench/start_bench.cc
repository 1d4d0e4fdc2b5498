// Programs that make their first CUDA call: how long until it is answered. Run it by `pyft run`;
// prints one JSON object: milliseconds of each program's call, fastest first, and of all together.
//
//   start_bench [programs] [at-once | in-turn]
//
// All programs are there before the first call and stay until the last one, so that starting and
// ending them is in neither time, and the two ways differ in nothing but how many calls are open.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kFailed = -1, kAtTheGate = -2;  // in place of milliseconds
// Descriptors. A byte in the gate lets one program through; the parent closes `kStay` at the end.
enum Descriptor { kResults = 100, kResultsRead, kGate, kGateWrite, kStay, kStayWrite };

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool say(double what) {
  return write(kResults, &what, sizeof what) == sizeof what;
}

// In each program, executed afresh: nothing of the parent's connection to the agent is there.
int first_call() {
  close(kGateWrite);
  close(kStayWrite);
  const auto malloc_device =
      reinterpret_cast<int (*)(void**, size_t)>(dlsym(RTLD_DEFAULT, "cudaMalloc"));
  char byte;
  if (!malloc_device || !say(kAtTheGate) || read(kGate, &byte, 1) != 1) return 1;
  const auto start = Clock::now();
  void* memory = nullptr;
  const int code = malloc_device(&memory, 1 << 20);
  if (!say(code ? kFailed : milliseconds_since(start))) return 1;
  return code || read(kStay, &byte, 1) != 0;
}

void start(const char* self) {
  if (fork()) return;
  execl(self, self, "child", nullptr);
  _exit(127);
}

// A pipe with the given descriptors.
bool open_pipe(int reading, int writing) {
  int ends[2];
  return pipe(ends) == 0 && dup2(ends[0], reading) >= 0 && dup2(ends[1], writing) >= 0 &&
         close(ends[0]) == 0 && close(ends[1]) == 0;
}

// False when a program has ended without a result.
bool hear(int count, std::vector<double>* times) {
  double one;
  for (int i = 0; i < count; ++i) {
    if (read(kResultsRead, &one, sizeof one) != sizeof one || one == kFailed) return false;
    if (one != kAtTheGate) times->push_back(one);
  }
  return true;
}

bool let_go(int programs, int open_at_once, std::vector<double>* times) {
  const std::string bytes(static_cast<size_t>(open_at_once), '.');
  for (int done = 0; done < programs; done += open_at_once) {
    if (write(kGateWrite, bytes.data(), bytes.size()) != open_at_once) return false;
    if (!hear(open_at_once, times)) return false;
  }
  return true;
}

int run(const char* self, int programs, bool in_turn) {
  if (!open_pipe(kResultsRead, kResults) || !open_pipe(kGate, kGateWrite) ||
      !open_pipe(kStay, kStayWrite))
    return 1;
  for (int i = 0; i < programs; ++i) start(self);
  close(kResults);
  std::vector<double> times;
  bool good = hear(programs, &times);
  const auto begin = Clock::now();
  good = good && let_go(programs, in_turn ? 1 : programs, &times);
  const double total = milliseconds_since(begin);
  close(kStayWrite);
  close(kGateWrite);  // also when some still are at the gate
  int status;
  while (wait(&status) > 0) good = good && status == 0;
  std::sort(times.begin(), times.end());
  std::printf("{\"total\": %.2f, \"each\": [", total);
  for (size_t i = 0; i < times.size(); ++i) std::printf("%s%.2f", i ? ", " : "", times[i]);
  std::printf("]}\n");
  return good ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && !std::strcmp(arguments[1], "child")) return first_call();
  const int programs = count > 1 ? std::atoi(arguments[1]) : 32;
  return run(arguments[0], programs, count > 2 && !std::strcmp(arguments[2], "in-turn"));
}
