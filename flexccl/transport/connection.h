// A link to another process that is being made: the hello is said, the welcome is not there yet.
// It may take as long as the other side needs to make its communicator; meanwhile a thread that
// wants the link can do other things, take a repair, or give up. What is given up is closed.
#ifndef FLEXCCL_TRANSPORT_CONNECTION_H_
#define FLEXCCL_TRANSPORT_CONNECTION_H_

#include <chrono>
#include <memory>
#include <vector>

#include "transport/address.h"
#include "transport/fault.h"
#include "transport/link.h"
#include "transport/memory.h"
#include "transport/socket.h"

namespace flexccl {

class Connection {
 public:
  // One that is complete: loopback.
  Connection(std::unique_ptr<Outbound> link, const LinkName& name);
  // `memory`: of the FIFO, null for TCP.
  Connection(Fd socket, std::shared_ptr<Memory> memory, const Key& key, const Hello& hello,
             const LinkName& name, Deadline deadline);

  // The link, if it comes within the time; else null. Throws ncclInProgress when the other side has
  // not reached the epoch yet, ncclRemoteError when there will be no link.
  std::unique_ptr<Outbound> wait(std::chrono::milliseconds longest);
  // In which the link was asked for.
  std::uint32_t epoch() const { return name_.epoch; }

 private:
  std::unique_ptr<Outbound> finish();

  std::unique_ptr<Outbound> link_;
  LinkName name_;
  Fd socket_;
  std::shared_ptr<Memory> memory_;
  Key key_;
  Hello hello_ = {};
  Deadline deadline_ = {};
  Welcome welcome_ = {};
  std::size_t received_ = 0;  // of the welcome
  std::vector<Fd> bells_;
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_CONNECTION_H_
