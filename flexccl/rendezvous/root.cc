#include "rendezvous/root.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "transport/fault.h"

namespace flexccl::rendezvous {
namespace {

constexpr std::uint64_t kJoinMs = 5000;     // a caller has this long to say which rank it is
constexpr std::uint64_t kAnswerMs = 10000;  // and this long to take its answer
constexpr std::size_t kMaxCallers = kMaxRanks + 1024;
constexpr int kSweepMs = 100;
constexpr int kFullMs = 20;  // until it is looked again whether there is room

std::atomic<std::uint64_t> work_done = 0;

bool refuse(int socket, const char* format, unsigned a, unsigned b) {
  Answer answer{kMagic, 1, {}, {}};
  std::snprintf(answer.text, sizeof answer.text, format, a, b);
  send(socket, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
  return false;
}

}  // namespace

Bytes16 join_mac(const Key& key, const Challenge& challenge, const Join& join) {
  std::byte text[sizeof challenge.nonce + offsetof(Join, mac)];
  std::memcpy(text, &challenge.nonce, sizeof challenge.nonce);
  std::memcpy(text + sizeof challenge.nonce, &join, offsetof(Join, mac));
  return keyed_hash(key, text);
}

Bytes16 answer_mac(const Key& key, const Join& join, const Bytes16& digest) {
  std::byte text[sizeof join.mac + sizeof digest];
  std::memcpy(text, &join.mac, sizeof join.mac);
  std::memcpy(text + sizeof join.mac, &digest, sizeof digest);
  return keyed_hash(key, text);
}

Bytes16 table_digest(const Key& key, const std::vector<Address>& table) {
  return keyed_hash(key, std::as_bytes(std::span(table)));
}

std::uint64_t Root::work() {
  return work_done.load(std::memory_order_relaxed);
}

Root::Root(Fd listener, const Key& key, Deadline deadline, Flag given_up)
    : listener_(std::move(listener), false),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      key_(key),
      deadline_(deadline),
      given_up_(std::move(given_up)) {
  if (!epoll_) fail(ncclSystemError, "flexccl: epoll failed with error [", errno, "]");
  watch(listener_.fd(), EPOLLIN, EPOLL_CTL_ADD);
}

void Root::watch(int fd, std::uint32_t events, int how) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), how, fd, &event);
}

void Root::run() {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  for (Deadline sweep = now(); !complete() && now() < deadline_ && !*given_up_;) {
    if (now() > sweep) end_late(), sweep = in_ms(kSweepMs);
    serve(kSweepMs);
    if (complete()) forget_dead();
  }
  if (!complete()) return;
  listener_.close();
  begin_answers();
  for (const Deadline end = in_ms(kAnswerMs); !callers_.empty() && now() < end;) serve(kSweepMs);
}

void Root::serve(int timeout_ms) {
  if (listens_ != has_room()) {
    listens_ = !listens_;
    watch(listener_.fd(), listens_ ? std::uint32_t{EPOLLIN} : 0, EPOLL_CTL_MOD);
  }
  if (!listens_) timeout_ms = std::min(timeout_ms, kFullMs);
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == listener_.fd()) {
      accept_all();
      continue;
    }
    const auto caller = callers_.find(fd);
    work_done.fetch_add(1, std::memory_order_relaxed);
    if (caller != callers_.end() && !advance(caller->second)) callers_.erase(caller);
  }
}

bool Root::has_room() const {
  if (callers_.size() < present_ + most_silent()) return true;
  return std::any_of(callers_.begin(), callers_.end(), [](const auto& entry) {
    const Caller& caller = entry.second;
    return !caller.joined && in_ms(kJoinMs) - caller.deadline > kSilentGrace;
  });
}

void Root::make_room() {
  if (callers_.size() < present_ + most_silent()) return;
  const auto age = [](const auto& entry) {
    return entry.second.joined ? Deadline::max() : entry.second.deadline;
  };
  callers_.erase(
      std::min_element(callers_.begin(), callers_.end(),
                       [&](const auto& one, const auto& other) { return age(one) < age(other); }));
}

void Root::accept_all() {
  while (has_room()) {
    Fd socket = listener_.next();
    if (!socket) return;
    make_room();
    const Challenge challenge{kMagic, kWireVersion, random_bytes16()};
    if (callers_.size() >= kMaxCallers ||
        send(socket.get(), &challenge, sizeof challenge, MSG_NOSIGNAL) != sizeof challenge)
      continue;
    work_done.fetch_add(1, std::memory_order_relaxed);
    const int fd = socket.get();
    watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    Caller& caller = callers_[fd];
    caller.challenge = challenge;
    caller.deadline = in_ms(kJoinMs);
    caller.socket = std::move(socket);
  }
}

bool Root::advance(Caller& caller) {
  if (caller.joined) return complete() ? answer(caller) : true;
  auto* to = reinterpret_cast<char*>(&caller.join) + caller.received;
  const long got =
      receive_some(caller.socket.get(), to, sizeof caller.join - caller.received, nullptr);
  if (got > 0) caller.received += static_cast<std::size_t>(got);
  if (caller.received < sizeof caller.join) return got != 0;
  const Join& join = caller.join;
  if (join.magic != kMagic || !equal_macs(join.mac, join_mac(key_, caller.challenge, join)))
    return refuse(caller.socket.get(), "the key of rank [%u] is not the key of the job", join.rank,
                  0);
  return enter(caller);
}

bool Root::enter(Caller& caller) {
  const Join& join = caller.join;
  const int socket = caller.socket.get();
  if (!join.nranks || join.nranks > kMaxRanks || join.rank >= join.nranks)
    return refuse(socket, "rank [%u] of [%u] cannot be", join.rank, join.nranks);
  if (!nranks_) nranks_ = join.nranks, table_.resize(nranks_), taken_.resize(nranks_);
  if (join.nranks != nranks_)
    return refuse(socket, "this rank says there are [%u] ranks, an earlier one said [%u]",
                  join.nranks, nranks_);
  if (taken_[join.rank]) forget_dead();
  if (taken_[join.rank])
    return refuse(socket, "two callers say they are rank [%u] of [%u]", join.rank, nranks_);
  taken_[join.rank] = true, table_[join.rank] = join.address, ++present_;
  watch(socket, 0, EPOLL_CTL_DEL);  // it says nothing more; its end would show again and again
  return caller.joined = true;
}

void Root::forget_dead() {
  std::erase_if(callers_, [this](const auto& entry) {
    const Caller& caller = entry.second;
    if (!caller.joined || !has_ended(caller.socket.get())) return false;
    taken_[caller.join.rank] = false, --present_;
    return true;
  });
}

void Root::begin_answers() {
  const Bytes16 digest = table_digest(key_, table_);
  std::erase_if(callers_, [](const auto& entry) { return !entry.second.joined; });
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    Caller& one = caller->second;
    one.answer = {kMagic, 0, answer_mac(key_, one.join, digest), {}};
    work_done.fetch_add(1, std::memory_order_relaxed);
    fault_in_answer();
    caller = answer(one) ? std::next(caller) : callers_.erase(caller);
  }
}

// One message; what does not fit into the socket follows when there is room, while others are
// served.
bool Root::answer(Caller& caller) {
  const std::span<const std::byte> parts[] = {bytes_of(caller.answer),
                                              std::as_bytes(std::span(table_))};
  iovec rest[2];
  std::size_t used = 0, skip = caller.sent, left = 0;
  for (const auto part : parts) {
    const auto now = part.subspan(std::min(skip, part.size()));
    skip -= part.size() - now.size(), left += now.size();
    rest[used++] = {const_cast<std::byte*>(now.data()), now.size()};
  }
  msghdr message{};
  message.msg_iov = rest;
  message.msg_iovlen = used;
  const ssize_t sent = sendmsg(caller.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  // A rank that is gone the others will miss when they connect to it.
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  caller.sent += static_cast<std::size_t>(sent);
  if (static_cast<std::size_t>(sent) == left) return false;
  watch(caller.socket.get(), EPOLLOUT, EPOLL_CTL_ADD);
  return true;
}

void Root::end_late() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(callers_, [now](const auto& entry) {
    return !entry.second.joined && now > entry.second.deadline;
  });
}

}  // namespace flexccl::rendezvous
