#include "transport/connection.h"

#include <poll.h>

#include <algorithm>

#include "base/error.h"
#include "transport/fifo.h"
#include "transport/tcp_link.h"

namespace flexccl {

Connection::Connection(std::unique_ptr<Outbound> link, const LinkName& name)
    : link_(std::move(link)), name_(name) {}

Connection::Connection(Fd socket, std::shared_ptr<Memory> memory, const Key& key,
                       const Hello& hello, const LinkName& name, Deadline deadline)
    : name_(name),
      socket_(std::move(socket)),
      memory_(std::move(memory)),
      key_(key),
      hello_(hello),
      deadline_(deadline) {}

std::unique_ptr<Outbound> Connection::wait(std::chrono::milliseconds longest) {
  if (link_) return with_faults(std::move(link_), name_);
  while (received_ < sizeof welcome_) {
    auto* to = reinterpret_cast<char*>(&welcome_) + received_;
    const long got = receive_some(socket_.get(), to, sizeof welcome_ - received_, &bells_);
    if (got == 0) fail(ncclRemoteError, "the connection was closed instead of sending its welcome");
    if (got > 0) {
      received_ += static_cast<std::size_t>(got);
      continue;
    }
    if (std::chrono::steady_clock::now() > deadline_)
      fail(ncclRemoteError, "waiting for its welcome took too long");
    pollfd look{socket_.get(), POLLIN, 0};
    const auto ms = std::exchange(longest, std::chrono::milliseconds(0)).count();
    if (!ms || poll(&look, 1, static_cast<int>(ms)) == 0) return nullptr;
  }
  return with_faults(finish(), name_);
}

std::unique_ptr<Outbound> Connection::finish() {
  if (welcome_.version == kComeAgain) fail(ncclInProgress, "it has not reached the epoch");
  if (!equal_macs(welcome_.mac, welcome_mac(key_, hello_)))
    fail(ncclRemoteError, "its welcome is not signed with the key of the job");
  if (!memory_) return std::make_unique<TcpOutbound>(std::move(socket_));
  if (bells_.size() != 1) fail(ncclRemoteError, "it sent [", bells_.size(), "] doorbells");
  Doorbell reader(Memory::adopt(std::move(bells_[0]), Doorbell::kBytes));
  return std::make_unique<FifoOutbound>(std::move(memory_), std::move(reader), std::move(socket_));
}

}  // namespace flexccl
