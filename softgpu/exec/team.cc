#include "exec/team.h"

#include <pthread.h>

#include <cfenv>
#include <thread>

namespace softgpu::exec {

void Team::member_loop() {
  std::fesetenv(FE_DFL_ENV);
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return next_ < end_; });
    const uint32_t number = next_++;
    const auto& job = *job_;
    ++running_;
    lock.unlock();
    job(number);
    lock.lock();
    if (--running_ == 0) ended_.notify_one();
  }
}

void Team::run(uint32_t count, const std::function<void(uint32_t)>& job) {
  {
    const std::lock_guard lock(mutex_);
    // Not joined at exit: they sleep, and the team is never destroyed.
    for (; members_ + 1 < count; ++members_) {
      std::thread member([this] { member_loop(); });
      pthread_setname_np(member.native_handle(), "softgpu-blocks");
      member.detach();
    }
    job_ = &job;
    next_ = 1;
    end_ = count;
  }
  wanted_.notify_all();
  job(0);
  std::unique_lock lock(mutex_);
  next_ = end_;
  ended_.wait(lock, [this] { return running_ == 0; });
}

}  // namespace softgpu::exec
