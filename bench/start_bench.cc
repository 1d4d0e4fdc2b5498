// Programs that start at once: how long until the first CUDA call of each is answered. Run it by
// `pyft run`; prints one JSON list of milliseconds, fastest first.
//
//   start_bench [programs]
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// In each program, executed afresh: nothing of the parent's connection to the agent is there.
int first_call(int gate, int results) {
  const auto malloc_device =
      reinterpret_cast<int (*)(void**, size_t)>(dlsym(RTLD_DEFAULT, "cudaMalloc"));
  char byte;
  if (!malloc_device || read(gate, &byte, 1) != 0) return 1;  // until the parent closes it
  const auto start = Clock::now();
  void* memory = nullptr;
  const int code = malloc_device(&memory, 1 << 20);
  const std::chrono::duration<double, std::milli> took = Clock::now() - start;
  const double result = code ? -1 : took.count();
  return write(results, &result, sizeof result) == sizeof result ? code : 1;
}

void start(const char* self, int gate, int results) {
  if (fork()) return;
  execl(self, self, "child", std::to_string(gate).c_str(), std::to_string(results).c_str(),
        nullptr);
  _exit(127);
}

int run(const char* self, int programs) {
  int gate[2], results[2];
  if (pipe(gate) || pipe(results)) return 1;
  // The children inherit the reading end of the gate only, or it would never close.
  if (dup2(gate[1], 100) < 0 || close(gate[1])) return 1;
  for (int i = 0; i < programs; ++i) start(self, gate[0], results[1]);
  close(results[1]);
  usleep(300'000);  // all of them are at the gate
  close(100);
  std::vector<double> times;
  double one;
  while (read(results[0], &one, sizeof one) == sizeof one) times.push_back(one);
  int status, failed = 0;
  while (wait(&status) > 0) failed += status != 0;
  std::sort(times.begin(), times.end());
  for (size_t i = 0; i < times.size(); ++i) std::printf("%s%.2f", i ? ", " : "[", times[i]);
  std::printf("]\n");
  return failed || times.size() != static_cast<size_t>(programs) ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 4) {
    close(100);
    return first_call(std::atoi(arguments[2]), std::atoi(arguments[3]));
  }
  return run(arguments[0], count > 1 ? std::atoi(arguments[1]) : 32);
}
