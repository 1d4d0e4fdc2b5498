#include "server/recovery/copier.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <utility>

#include "pyft/fault.h"
#include "ring/wait.h"

namespace pyft::server {

namespace {

constexpr int kNice = 10;

}  // namespace

Copier::Copier(DigestKey key, Peek peek)
    : key_(key),
      peek_(std::move(peek)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Copier::~Copier() {
  finish();
}

void Copier::start(std::vector<CopyJob> jobs, std::function<void(const Outcome&)> done) {
  {
    const std::lock_guard lock(mutex_);
    jobs_ = std::move(jobs);
    next_ = 0;
    left_ = jobs_.size();
    done_ = std::move(done);
    outcome_ = {};
    busy_ = true;
  }
  begun_.notify_one();
}

void Copier::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (!busy_) return;
  }
  copy_some();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return !busy_; });
}

void Copier::run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "pyft-copier");
  setpriority(PRIO_PROCESS, 0, kNice);  // of this thread
  std::unique_lock lock(mutex_);
  while (begun_.wait(lock, stop, [this] { return busy_; })) {
    lock.unlock();
    copy_some();
    lock.lock();
    copied_.wait(lock, [this] { return left_ == 0; });
    lock.unlock();
    done_(outcome_);
    lock.lock();
    busy_ = false;
    ended_.notify_all();
  }
}

void Copier::copy_some() {
  for (size_t i = next_++; i < jobs_.size(); i = next_++) {
    const uint64_t began = ring::now_ns();
    const bool same = copy(jobs_[i]);
    const std::lock_guard lock(mutex_);
    if (!same) outcome_.changed.push_back(jobs_[i]);
    outcome_.spent_ns += ring::now_ns() - began;
    if (--left_ == 0) copied_.notify_one();
  }
}

bool Copier::copy(const CopyJob& job) const {
  PYFT_FAULT("cut.copying");
  return peek_(job.address, job.to, job.bytes) && digest(job.to, job.bytes, key_) == job.digest;
}

// The kernel copies: memory that the program has unmapped meanwhile is an answer and not a SIGSEGV.
bool peek_own_memory(uint64_t address, std::byte* to, uint64_t bytes) {
  const iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

bool can_peek_own_memory() {
  const uint64_t here = 1;
  uint64_t there = 0;
  return peek_own_memory(reinterpret_cast<uint64_t>(&here), reinterpret_cast<std::byte*>(&there),
                         sizeof there) &&
         there == here;
}

}  // namespace pyft::server
