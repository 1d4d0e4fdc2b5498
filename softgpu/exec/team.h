// Threads that help the one that runs a launch.
#ifndef SOFTGPU_EXEC_TEAM_H_
#define SOFTGPU_EXEC_TEAM_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace softgpu::exec {

// Threads are started when they are first needed and sleep in between: they never spin.
class Team {
 public:
  // Calls job(0) here and job(1) .. job(count - 1) on threads of the team; returns when all have
  // ended. A thread that has not woken up when job(0) ends is not waited for: its job is left out,
  // so a job has to take its work from a common pool until that is empty. One run at a time.
  void run(uint32_t count, const std::function<void(uint32_t)>& job);

 private:
  void member_loop();

  std::mutex mutex_;
  std::condition_variable wanted_, ended_;
  const std::function<void(uint32_t)>* job_ = nullptr;
  uint32_t next_ = 0, end_ = 0;  // jobs not yet taken
  uint32_t running_ = 0;
  uint32_t members_ = 0;
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_TEAM_H_
