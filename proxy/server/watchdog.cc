#include "server/watchdog.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace pyft::server {

namespace {

constexpr std::chrono::milliseconds kPeriod{100};

void beat(std::stop_token stop, Session& session, const std::function<void()>& enter) {
  pthread_setname_np(pthread_self(), "pyft-heartbeat");
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  if (enter) enter();
  while (!stop.stop_requested()) {
    session.channel().control().heartbeat_ns.store(ring::now_ns(), std::memory_order_relaxed);
    session.sweep_fences();
    session.sweep();
    session.show_activity();
    wake.wait_for(lock, stop, kPeriod, [] { return false; });
  }
}

}  // namespace

Heartbeat::Heartbeat(Session& session, std::function<void()> enter)
    : thread_([&session, enter = std::move(enter)](std::stop_token stop) {
        beat(std::move(stop), session, enter);
      }) {}

}  // namespace pyft::server
