#include "server/recovery/copier.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <utility>

#include "pyft/fault.h"
#include "ring/wait.h"
#include "server/recovery/bytes_passed.h"

namespace pyft::server {

namespace {

constexpr int kNice = 10;
constexpr int kNothingThere = 1;  // CUDA_ERROR_INVALID_VALUE, as a device would say

}  // namespace

Copier::Copier(Copy copy, std::function<void()> enter)
    : copy_(std::move(copy)),
      enter_(std::move(enter)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Copier::~Copier() {
  finish();
}

void Copier::start(std::vector<CopyJob> jobs, std::function<void(const Outcome&)> done) {
  {
    const std::lock_guard lock(mutex_);
    jobs_ = std::move(jobs);
    next_ = 0;
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
  if (enter_) enter_();
  std::unique_lock lock(mutex_);
  while (begun_.wait(lock, stop, [this] { return busy_; })) {
    lock.unlock();
    copy_some();
    lock.lock();
    copied_.wait(lock, [this] { return copying_ == 0; });
    const Outcome outcome = std::exchange(outcome_, {});
    lock.unlock();
    done_(outcome);
    lock.lock();
    busy_ = false;
    ended_.notify_all();
  }
}

void Copier::copy_some() {
  {
    const std::lock_guard lock(mutex_);
    ++copying_;
  }
  const uint64_t began = ring::now_ns();
  const int code = copy_([this] { return next(); },
                         [this](const CopyJob& job, bool same) { copied(job, same); });
  const std::lock_guard lock(mutex_);
  outcome_.spent_ns += ring::now_ns() - began;
  if (!outcome_.code) outcome_.code = code;
  if (--copying_ == 0) copied_.notify_one();
}

const CopyJob* Copier::next() {
  const size_t i = next_++;
  if (i >= jobs_.size()) return nullptr;
  PYFT_FAULT("cut.copying");
  return &jobs_[i];
}

void Copier::copied(const CopyJob& job, bool same) {
  if (same) return;
  const std::lock_guard lock(mutex_);
  outcome_.changed.push_back(job);
}

Copier::Copy copy_by_looking(decltype(RecoveryCalls::peek) peek, DigestKey key) {
  return [peek = std::move(peek), key](const Copier::Next& next, const Copier::Copied& copied) {
    int code = 0;
    while (const CopyJob* const job = next()) {
      const bool there = peek(job->address, job->to, job->bytes);
      if (!there) code = kNothingThere;
      pass_bytes(job->bytes);
      copied(*job, there && digest(job->to, job->bytes, key) == job->digest);
    }
    return code;
  };
}

// While a piece is copied and hashed the next ones travel.
Copier::Copy copy_by_reading(decltype(RecoveryCalls::read) read, DigestKey key) {
  return [read = std::move(read), key](const Copier::Next& next, const Copier::Copied& copied) {
    std::deque<const CopyJob*> jobs;  // asked for, and not copied
    Hasher hasher(key);
    uint64_t done = 0;  // of the first
    const auto range = [&](MemoryRange* wanted) {
      const CopyJob* const job = next();
      if (!job) return false;
      jobs.push_back(job);
      *wanted = {job->address, job->bytes};
      return true;
    };
    const auto take = [&](const std::byte* piece, uint64_t bytes) {
      const CopyJob& job = *jobs.front();
      std::memcpy(job.to + done, piece, bytes);
      hasher.add(job.to + done, bytes);
      if ((done += bytes) < job.bytes) return;
      copied(job, hasher.digest() == job.digest);
      jobs.pop_front();
      hasher.restart();
      done = 0;
    };
    const int code = read(range, take);
    for (const CopyJob* const job : jobs) copied(*job, false);
    while (const CopyJob* const job = code ? next() : nullptr) copied(*job, false);
    return code;
  };
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
