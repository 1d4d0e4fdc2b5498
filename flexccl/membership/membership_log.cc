#include "membership/membership_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

namespace flexccl {
namespace {

// In communicators of three, both survivors of any repair are neighbours.
constexpr std::size_t kSmall = 3;

struct Boards {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<MembershipLog>> by_comm;
};

// Never destroyed: threads of the process may look until its very end.
Boards& boards() {
  static Boards* const all = std::make_unique<Boards>().release();
  return *all;
}

std::string name_for(const Membership& self) {
  const std::uint64_t parts[] = {self.comm, self.address(self.slot).host};
  char text[48];
  std::snprintf(
      text, sizeof text, "/flexccl-%016llx",
      static_cast<unsigned long long>(keyed_hash64(self.key, std::as_bytes(std::span(parts)))));
  return text;
}

}  // namespace

MembershipLog::MembershipLog(Fd fd, Page* page, std::string name, const Membership& self)
    : fd_(std::move(fd)), page_(page), name_(std::move(name)), key_(self.key) {}

MembershipLog::~MembershipLog() {
  forget_name();
  munmap(page_, kBytes);
}

void MembershipLog::forget_name() {
  if (!name_.empty() && !page_->nameless.exchange(1)) shm_unlink(name_.c_str());
}

std::shared_ptr<MembershipLog> MembershipLog::map(Fd fd, const std::string& name,
                                                  const Membership& self) {
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  return std::shared_ptr<MembershipLog>(
      new MembershipLog(std::move(fd), static_cast<Page*>(at), name, self));
}

std::shared_ptr<MembershipLog> MembershipLog::make(const Membership& self, bool shared) {
  const std::string name = shared ? name_for(self) : "";
  Fd fd(shared ? shm_open(name.c_str(), O_RDWR, 0)
               : memfd_create("flexccl-membership", MFD_CLOEXEC));
  if (!fd) fd = Fd(shm_open(name.c_str(), O_CREAT | O_RDWR, 0600));
  if (!fd || ftruncate(fd.get(), kBytes) != 0) return nullptr;
  return map(std::move(fd), name, self);
}

std::shared_ptr<MembershipLog> MembershipLog::begin(const Membership& self) {
  if (self.members.size() <= kSmall) return nullptr;
  if (self.addresses.size() > Info::kMaxSlots) return nullptr;  // their ranks are not replaced
  const Address& own = self.address(self.slot);
  std::uint32_t here = 0;
  bool shared = false;
  for (const int member : self.members) {
    const Address& there = self.address(member);
    if (there.host != own.host || !there.port) continue;
    ++here;
    shared |= there.process != own.process;
  }
  std::shared_ptr<MembershipLog> log;
  {
    const std::scoped_lock lock(boards().mutex);
    std::erase_if(boards().by_comm, [](const auto& one) { return one.second.expired(); });
    auto& known = boards().by_comm[self.comm];
    log = known.lock();
    if (!log) known = log = make(self, shared);
  }
  if (!log) return nullptr;
  log->set_reader(self.slot, true);
  if (log->page_->arrived.fetch_add(1) + 1 == here) log->forget_name();
  return log;
}

std::shared_ptr<MembershipLog> MembershipLog::find(const Membership& self) {
  const std::scoped_lock lock(boards().mutex);
  const auto found = boards().by_comm.find(self.comm);
  return found == boards().by_comm.end() ? nullptr : found->second.lock();
}

std::shared_ptr<MembershipLog> MembershipLog::adopt(Fd fd, const Membership& self) {
  struct stat status{};
  if (fstat(fd.get(), &status) != 0 || status.st_size != kBytes) return nullptr;
  auto log = map(std::move(fd), "", self);
  if (!log) return nullptr;
  const std::scoped_lock lock(boards().mutex);
  auto& known = boards().by_comm[self.comm];
  if (const auto other = known.lock()) return other;
  known = log;
  return log;
}

std::uint64_t MembershipLog::mac_of(const Step& step) const {
  return keyed_hash64(key_, bytes_of(step).first(offsetof(Step, mac)));
}

bool MembershipLog::read(std::uint32_t cell, Step* step) const {
  std::array<std::uint64_t, 8> words;
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = page_->cells[cell % kCells][i].load(std::memory_order_relaxed);
  std::memcpy(static_cast<void*>(step), words.data(), sizeof *step);
  return step->mac == mac_of(*step);
}

std::vector<Change> MembershipLog::steps_after(std::uint32_t epoch) const {
  const std::uint64_t head = page_->head.load(std::memory_order_acquire);
  std::uint32_t wanted = static_cast<std::uint32_t>(head >> 32);
  auto cell = static_cast<std::uint32_t>(head);
  std::vector<Change> steps;
  for (; wanted > epoch; --wanted) {
    Step step;
    if (!read(cell, &step) || step.change.epoch != wanted) return {};
    steps.push_back(step.change);
    cell = step.previous;
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

bool MembershipLog::append(const Change& change, std::uint64_t head) {
  const auto newest = static_cast<std::uint32_t>(head);
  std::uint32_t cell;
  do {
    cell = page_->claimed.fetch_add(1) % kCells;
  } while (head >> 32 && cell == newest);
  Step step{change, newest, 0, 0};
  step.mac = mac_of(step);
  std::array<std::uint64_t, 8> words;
  std::memcpy(words.data(), &step, sizeof step);
  for (std::size_t i = 0; i < words.size(); ++i)
    page_->cells[cell][i].store(words[i], std::memory_order_relaxed);
  // The rank that the step puts into the slot has not mapped this page yet.
  set_reader(change.slot, false);
  return page_->head.compare_exchange_strong(head, std::uint64_t{change.epoch} << 32 | cell,
                                             std::memory_order_acq_rel);
}

bool MembershipLog::publish(std::span<const Change> steps) {
  for (const Change& step : steps)
    for (;;) {
      const std::uint64_t head = page_->head.load(std::memory_order_acquire);
      if (head >> 32 >= step.epoch || step.epoch - (head >> 32) > 1) break;
      if (append(step, head)) break;
    }
  const std::vector<Change> known = steps_after(steps.back().epoch - 1);
  return known.empty() || same_step(known.front(), steps.back());
}

bool MembershipLog::is_read_by(int slot) const {
  const auto at = static_cast<std::size_t>(slot);
  return page_->readers[at / 64].load(std::memory_order_acquire) >> at % 64 & 1;
}

void MembershipLog::set_reader(int slot, bool reads) {
  const auto at = static_cast<std::size_t>(slot);
  const std::uint64_t bit = std::uint64_t{1} << at % 64;
  reads ? page_->readers[at / 64].fetch_or(bit) : page_->readers[at / 64].fetch_and(~bit);
}

}  // namespace flexccl
