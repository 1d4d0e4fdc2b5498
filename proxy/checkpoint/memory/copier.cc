#include "checkpoint/memory/copier.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <deque>
#include <utility>

#include "checkpoint/bytes_passed.h"
#include "checkpoint/throttle.h"
#include "pyft/fault.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

constexpr int kNice = 10;
constexpr int kNothingThere = 1;  // CUDA_ERROR_INVALID_VALUE, as a device would say

// Memory that this process can look at itself.
int copy_by_looking(BackgroundReads& device, DigestKey key, const NextCopy& next,
                    const CopyDone& copied) {
  int code = 0;
  while (const CopyJob* const job = next()) {
    const bool there = device.peek(job->address, job->to, job->bytes);
    if (!there) code = kNothingThere;
    pass_copied(job->bytes);
    throttle(job->bytes);
    copied(*job, there && digest(job->to, job->bytes, key) == job->digest);
  }
  return code;
}

}  // namespace

std::string Copier::Outcome::problem() const {
  if (changed.empty()) return {};
  const CopyJob& first = changed[0];
  const std::string blocks = "[" + std::to_string(changed.size()) + "] blocks ";
  const std::string where = ", the first of [" + std::to_string(first.bytes) + "] bytes at [" +
                            std::to_string(first.address) + "]: ";
  if (!code)
    return blocks + "have changed while they were copied" + where +
           "their changes are announced by no optimizer step";
  return blocks + "could not be copied behind it, or have changed" + where + "code [" +
         std::to_string(code) + "]";
}

Copier::Copier(BackgroundReads& device, DigestKey key, User& user)
    : device_(device),
      key_(key),
      user_(user),
      peeks_(device.peeks()),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Copier::~Copier() {
  finish();
}

void Copier::start(std::vector<CopyJob> jobs) {
  {
    const std::lock_guard lock(mutex_);
    jobs_ = std::move(jobs);
    next_ = 0;
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
  if (!peeks_) device_.enter();
  std::unique_lock lock(mutex_);
  while (begun_.wait(lock, stop, [this] { return busy_; })) {
    lock.unlock();
    copy_some();
    lock.lock();
    copied_.wait(lock, [this] { return copying_ == 0; });
    const Outcome outcome = std::exchange(outcome_, {});
    lock.unlock();
    user_.copied(outcome);
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
  const int code = copy();
  const std::lock_guard lock(mutex_);
  outcome_.spent_ns += ring::now_ns() - began;
  if (!outcome_.code) outcome_.code = code;
  if (--copying_ == 0) copied_.notify_one();
}

int Copier::copy() {
  const auto next_job = [this] { return next(); };
  const auto done = [this](const CopyJob& job, bool same) { copied(job, same); };
  if (peeks_) return copy_by_looking(device_, key_, next_job, done);
  const auto read = [this](const NextRange& next, const TakePiece& take) {
    return device_.read_beside(next, take);
  };
  const auto read_hashed = [this](const NextRange& next, const TakePiece& take,
                                  const TakeDigest& hashed) {
    return device_.read_beside_hashed(next, take, hashed);
  };
  return copy_by_reading({read, read_hashed}, key_, next_job, done);
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

// While a piece is copied, and hashed if it has to be, the next ones travel.
int copy_by_reading(const Reads& reads, DigestKey key, const NextCopy& next,
                    const CopyDone& copied) {
  std::deque<const CopyJob*> jobs;  // asked for, and not copied
  uint64_t done = 0;                // of the first
  const auto range = [&](MemoryRange* wanted) {
    const CopyJob* const job = next();
    if (!job) return false;
    jobs.push_back(job);
    *wanted = {job->address, job->bytes};
    return true;
  };
  const auto copy_piece = [&](const std::byte* piece, uint64_t bytes) {
    pass_copy(jobs.front()->to + done, piece, bytes);
    throttle(bytes);
    done += bytes;
  };
  const auto end_of = [&](const ring::Digest& digest) {
    const CopyJob& job = *jobs.front();
    copied(job, done == job.bytes && digest == job.digest);
    jobs.pop_front();
    done = 0;
  };
  int code = reads.hashed(range, copy_piece, end_of);
  if (code == kNotOnDevice) {
    Hasher hasher(key);
    const auto copy_and_hash = [&](const std::byte* piece, uint64_t bytes) {
      copy_piece(piece, bytes);
      const CopyJob& job = *jobs.front();
      hasher.add(job.to + done - bytes, bytes);
      if (done < job.bytes) return;
      end_of(hasher.digest());
      hasher.restart();
    };
    code = reads.plain(range, copy_and_hash);
  }
  for (const CopyJob* const job : jobs) copied(*job, false);
  while (const CopyJob* const job = code ? next() : nullptr) copied(*job, false);
  return code;
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

}  // namespace pyft::checkpoint
