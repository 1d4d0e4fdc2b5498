// What waits need that look again and again.
#ifndef FLEXCCL_BASE_WAITING_H_
#define FLEXCCL_BASE_WAITING_H_

#include <chrono>

namespace flexccl {

inline bool has_passed(std::chrono::steady_clock::time_point deadline) {
  return std::chrono::steady_clock::now() > deadline;
}

// Says now and then that it is time for something that costs more than a look.
class Every {
 public:
  explicit Every(std::chrono::milliseconds period) : period_(period), next_(now() + period) {}
  bool is_due() {
    if (now() < next_) return false;
    next_ = now() + period_;
    return true;
  }

 private:
  static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

  std::chrono::milliseconds period_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace flexccl

#endif  // FLEXCCL_BASE_WAITING_H_
