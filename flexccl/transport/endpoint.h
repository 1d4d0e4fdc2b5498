// This process's end of all links: one TCP port, one Unix socket, one thread that answers them.
//
// Set-up: the connecting side gets a challenge, answers with a hello authenticated by the job's
// key, and waits for a welcome, which comes once the destination's communicator exists. A rank that
// does not know a key of this process is refused before anything it says is looked at.
#ifndef FLEXCCL_TRANSPORT_ENDPOINT_H_
#define FLEXCCL_TRANSPORT_ENDPOINT_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "flexccl.h"
#include "transport/acceptor.h"
#include "transport/address.h"
#include "transport/connection.h"
#include "transport/inbox.h"
#include "transport/socket.h"

namespace flexccl {

struct LinkRequest {
  InboxName inbox;
  std::uint32_t source;
  flexcclTransport_t transport;
  Key key;
  Deadline deadline;
  // Called several times a second while nothing is asked for yet; may throw to end the attempt.
  std::function<void()> look = nullptr;
};

// The connecting side's first step, on a new connection: the hello that answers the challenge.
Hello hello_for(int socket, const LinkRequest& request, LinkKind kind);

class Endpoint {
 public:
  // Made at first use, never destroyed: its thread serves until the process ends.
  static Endpoint& process();

  const Address& address() const { return address_; }
  // Must come before the address is told to any process that may use the key.
  void learn_key(const Key& key);
  void add(const InboxName& name, std::shared_ptr<Inbox> inbox);
  // Has no effect when a successor has taken the place of `inbox`.
  void remove(const InboxName& name, const std::shared_ptr<Inbox>& inbox);
  std::shared_ptr<Inbox> find(const InboxName& name);
  // Returns when the link is asked for. Throws ncclInProgress when the other side has not reached
  // the epoch yet.
  std::unique_ptr<Connection> connect(const Address& to, const LinkRequest& request,
                                      const Doorbell& own);
  // Connections that were refused so far: wrong key, wrong version, garbage, a link twice.
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  struct Caller {
    Fd socket = {};
    Challenge challenge;
    Hello hello;
    std::size_t received = 0;
    std::vector<Fd> fds;
    Deadline deadline = {};
    bool greeted = false;
  };
  Endpoint();
  [[noreturn]] void serve();
  void accept_all(Acceptor& listener);
  // Whether one more caller may be taken; the oldest silent one goes if it has had its time.
  bool has_room() const;
  void make_room();
  // False: the caller is done with, one way or the other.
  bool advance(Caller& caller);
  bool authentic(const Caller& caller);
  // Precondition of these: mutex_ is held.
  bool has_ended(const InboxName& name) const;
  bool deliver(Caller& caller);
  std::unique_ptr<Inbound> inbound(Caller& caller);
  std::unique_ptr<Outbound> connect_loopback(const LinkRequest& request, const Doorbell& own);

  Address address_;
  Acceptor tcp_, unix_;
  std::atomic<std::uint64_t> refused_ = 0;
  std::mutex mutex_;
  std::condition_variable inboxes_changed_;
  std::map<std::uint64_t, Key> keys_;
  std::map<InboxName, std::shared_ptr<Inbox>> inboxes_;
  // The last ones that ended: ranks that still call for them are refused now, not kept waiting.
  std::deque<InboxName> ended_;
  std::list<Caller> callers_;  // the serving thread's; those greeted wait for their inbox
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_ENDPOINT_H_
