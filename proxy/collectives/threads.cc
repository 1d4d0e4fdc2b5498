#include "collectives/threads.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace pyft::collectives {
namespace {

struct Job {
  void (*function)(void*);
  void* data;
};

struct Pool {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Job> jobs;
  size_t idle = 0;
};

// Never destroyed: its threads end with the process.
Pool& pool() {
  static auto* const made = new Pool;
  return *made;
}

[[noreturn]] void serve(Pool& p) {
  pthread_setname_np(pthread_self(), "pyft-collective");
  std::unique_lock lock(p.mutex);
  for (;;) {
    ++p.idle;
    p.arrived.wait(lock, [&] { return !p.jobs.empty(); });
    --p.idle;
    const Job job = p.jobs.front();
    p.jobs.pop_front();
    lock.unlock();
    job.function(job.data);
    lock.lock();
  }
}

}  // namespace

void run_in_thread(void (*function)(void*), void* data) {
  Pool& p = pool();
  const std::scoped_lock lock(p.mutex);
  p.jobs.push_back({function, data});
  // Never more jobs than threads: a job may wait for one behind it.
  if (p.jobs.size() > p.idle) std::thread([&p] { serve(p); }).detach();
  p.arrived.notify_one();
}

}  // namespace pyft::collectives
