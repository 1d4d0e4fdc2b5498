// Completion words and the sticky error: what the device side tells the client unasked.
#include "ring/completion.h"
#include "server/recovery/bytes_passed.h"
#include "server/session.h"

namespace pyft::server {

namespace {
constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY

// What may not be done while a stream captures says nothing of the device.
bool is_about_captures(int code) {
  constexpr int kFirst = 900, kLast = 908;
  return code >= kFirst && code <= kLast;
}

}  // namespace

int Session::device_status() const {
  const std::lock_guard lock(captures_mutex_);
  const auto& ask = captures_.load() && device_calls_.status_in_capture
                        ? device_calls_.status_in_capture
                        : device_calls_.status;
  return ask ? ask() : 0;
}

void Session::publish(uint32_t word, uint64_t value) {
  if (recovery_.replaying()) recovery_.word_reached(word, value);
  ring::publish(channel_, word, value);
}

void Session::check_device(int32_t code, const char* call) {
  if (!is_device_fault(code) || !recovery_.repairs() ||
      recovery_.mode() == ring::ReplayMode::kDeliver)
    return;
  recovery_.fail(ring::FaultKind::kDevice, code,
                 std::string("[") + call + "] reports error [" + std::to_string(code) + "]");
}

int Session::device_failure() const {
  if (const int code = sticky_.load()) return code;
  const int code = device_status();
  return is_device_fault(code) ? code : 0;
}

int Session::on_stream(void* stream, std::function<void()> function) {
  if (!device_calls_.publish) {
    function();
    return 0;
  }
  auto* const job = new std::function<void()>(std::move(function));
  const auto run = [](void* data) {
    auto* const one = static_cast<std::function<void()>*>(data);
    (*one)();
    delete one;
  };
  const int code = device_calls_.publish(stream, run, job);
  if (code) delete job;
  return code;
}

void Session::set_sticky(int32_t code, bool of_device) {
  if (code && of_device) check_device(code, "a command");
  int32_t none = 0;
  if (code && sticky_.compare_exchange_strong(none, code)) channel_.control().sticky_error = code;
  if (code) publish_outstanding();
}

int32_t Session::take_sticky() {
  channel_.control().sticky_error = 0;
  return sticky_.exchange(0);
}

Status Session::publish_on_stream(void* stream, uint32_t word, uint64_t value) {
  if (word >= ring::kCompletionWords)
    return Status::broken("completion word [" + std::to_string(word) + "] is out of range");
  if (recovery_.replaying()) recovery_.word_sent(word, value);
  if (sticky_.load() || !device_calls_.publish) {
    publish(word, value);
    return Status::good();
  }
  Fence* fence = nullptr;
  {
    std::lock_guard lock(fences_mutex_);
    fences_.push_back({this, word, value, false, {}});
    fences_.back().self = std::prev(fences_.end());
    fence = &fences_.back();
  }
  // Outside the lock: a backend may run the function at once, in this thread.
  const auto& when_there = device_calls_.signal ? device_calls_.signal : device_calls_.publish;
  if (const int code = when_there(stream, run_fence, fence)) set_sticky(code);
  return Status::good();
}

void Session::run_fence(void* data) {
  Fence* fence = static_cast<Fence*>(data);
  Session& session = *fence->session;
  session.publish(fence->word, fence->value);
  std::lock_guard lock(session.fences_mutex_);
  (fence->dead ? session.dead_fences_ : session.fences_).erase(fence->self);
}

void Session::publish_outstanding() {
  std::lock_guard lock(fences_mutex_);
  for (Fence& fence : fences_) {
    publish(fence.word, fence.value);
    fence.dead = true;
  }
  // Kept alive: the device may come to them after all.
  dead_fences_.splice(dead_fences_.end(), fences_);
}

bool Session::work() {
  if (!device_calls_.work) return false;
  if (device_calls_.work()) return true;
  sweep_fences();
  return false;
}

// What cannot be seen is taken to wait: a rank that stands in a collective until another one has
// saved its checkpoint is not stuck.
uint64_t Session::waiting() const {
  const auto& sees = device_calls_.sees_collectives;
  const bool unseen = shares_communicator_.load() && sees && !sees();
  return (device_calls_.waiting ? device_calls_.waiting() : 0) + unseen;
}

void Session::show_activity() {
  ring::ControlPage& page = channel_.control();
  page.passed_bytes.store(bytes_passed.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (!device_calls_.progress || !device_calls_.waiting) return;
  page.device_progress.store(device_calls_.progress(), std::memory_order_relaxed);
  page.collectives_waiting.store(static_cast<uint32_t>(waiting()), std::memory_order_relaxed);
  std::lock_guard lock(fences_mutex_);
  page.fences_open.store(static_cast<uint32_t>(fences_.size()), std::memory_order_relaxed);
}

void Session::set_sweep(std::function<void()> sweep) {
  const std::lock_guard lock(sweep_mutex_);
  sweep_ = std::move(sweep);
  has_sweep_ = true;
}

void Session::sweep() {
  const std::lock_guard lock(sweep_mutex_);
  if (sweep_) sweep_();
}

void Session::sweep_fences() {
  {
    std::lock_guard lock(fences_mutex_);
    if (fences_.empty()) return;
  }
  const int code = device_status();
  if (code && code != kNotReady && !is_about_captures(code)) set_sticky(code);
}

}  // namespace pyft::server
