#include "server/watchdog.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace pyft::server {

namespace {

constexpr std::chrono::milliseconds kPeriod{100};

template <class Turn>
void every_period(const std::stop_token& stop, Turn turn) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    turn();
    wake.wait_for(lock, stop, kPeriod, [] { return false; });
  }
}

void beat(const std::stop_token& stop, Session& session) {
  pthread_setname_np(pthread_self(), "pyft-heartbeat");
  every_period(stop, [&] {
    session.channel().control().heartbeat_ns.store(ring::now_ns(), std::memory_order_relaxed);
    session.show_activity();
  });
}

void watch(const std::stop_token& stop, Session& session) {
  pthread_setname_np(pthread_self(), "pyft-watchdog");
  session.enter_device();
  every_period(stop, [&] {
    session.sweep_fences();
    session.sweep();
  });
}

}  // namespace

Heartbeat::Heartbeat(Session& session)
    : beat_([&session](const std::stop_token& stop) { beat(stop, session); }),
      watch_([&session](const std::stop_token& stop) { watch(stop, session); }) {}

}  // namespace pyft::server
