// Completion words and the sticky error: what the device side tells the client unasked.
#include "checkpoint/bytes_passed.h"
#include "checkpoint/device.h"
#include "ring/completion.h"
#include "server/session/session.h"

namespace pyft::server {

namespace {
// What may not be done while a stream captures says nothing of the device.
bool is_about_captures(int code) {
  constexpr int kFirst = 900, kLast = 908;
  return code >= kFirst && code <= kLast;
}

}  // namespace

int Session::device_status() const {
  const std::lock_guard lock(captures_mutex_);
  return captures_.load() ? device_.status_in_capture() : device_.status();
}

void Session::publish(uint32_t word, uint64_t value) {
  recovery_.words().reached(word, value);
  ring::publish(channel_, word, value);
}

int Session::device_failure() const {
  if (const int code = sticky_.load()) return code;
  const int code = device_status();
  return checkpoint::is_device_fault(code) ? code : 0;
}

int Session::on_stream(void* stream, std::function<void()> function) {
  auto* const job = new std::function<void()>(std::move(function));
  const auto run = [](void* data) {
    auto* const one = static_cast<std::function<void()>*>(data);
    (*one)();
    delete one;
  };
  const int code = device_.publish(stream, run, job);
  if (code) delete job;
  return code;
}

void Session::set_sticky(int32_t code, bool of_device) {
  if (code && of_device) check_device(code, "the GPU");
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
  recovery_.words().sent(word, value);
  if (sticky_.load()) {
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
  if (const int code = device_.signal(stream, run_fence, fence)) set_sticky(code);
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
  if (!device_.works()) return false;
  if (device_.work()) return true;
  sweep_fences();
  return false;
}

// What cannot be seen is taken to wait: a rank that stands in a collective until another one has
// saved its checkpoint is not stuck.
bool Session::may_wait_unseen() const {
  return shares_communicator_.load() && !device_.sees_collectives();
}

bool Session::device_waits() const {
  return may_wait_unseen() || device_.waiting().value_or(0) != 0;
}

void Session::show_activity() {
  ring::ControlPage& page = channel_.control();
  page.passed_bytes.store(checkpoint::bytes_passed.load(std::memory_order_relaxed),
                          std::memory_order_relaxed);
  const std::optional<uint64_t> progress = device_.progress();
  const std::optional<uint64_t> waiting = device_.waiting();
  if (!progress || !waiting) return;
  page.device_progress.store(*progress + 1, std::memory_order_relaxed);  // 0: it is not known
  page.collectives_waiting.store(static_cast<uint32_t>(*waiting + may_wait_unseen()),
                                 std::memory_order_relaxed);
  std::lock_guard lock(fences_mutex_);
  page.fences_open.store(static_cast<uint32_t>(fences_.size()), std::memory_order_relaxed);
}

void Session::set_sweep(Sweep* sweep) {
  const std::lock_guard lock(sweep_mutex_);
  sweep_ = sweep;
  has_sweep_ = true;
}

void Session::sweep() {
  const std::lock_guard lock(sweep_mutex_);
  if (sweep_) sweep_->sweep();
}

void Session::sweep_fences() {
  {
    std::lock_guard lock(fences_mutex_);
    if (fences_.empty()) return;
  }
  const int code = device_status();
  if (code && code != checkpoint::kNotReady && !is_about_captures(code)) set_sticky(code);
}

}  // namespace pyft::server
