// The messages of the rendezvous over TCP, and the side that answers them.
//
// Each rank connects, gets a challenge, and says which rank it is; when all have come, each gets
// one answer with the addresses of all. So the root takes one message from each rank and gives it
// two. A rank that dies before all have come may come again. When all have come, none gets in any
// more: what comes then is a rank that died, whose place the others give it in another way.
#ifndef FLEXCCL_RENDEZVOUS_ROOT_H_
#define FLEXCCL_RENDEZVOUS_ROOT_H_

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "transport/acceptor.h"
#include "transport/address.h"
#include "transport/socket.h"

namespace flexccl::rendezvous {

inline constexpr std::uint32_t kMaxRanks = 65536;

struct Join {
  std::uint32_t magic, version, rank, nranks;
  Address address;
  Bytes16 mac;  // over the challenge's nonce and everything above
};
static_assert(sizeof(Join) == 64);

// Followed by the addresses when status is 0; `mac` covers the caller's mac and their digest.
struct Answer {
  std::uint32_t magic, status;
  Bytes16 mac;
  char text[104];
};
static_assert(sizeof(Answer) == 128);

Bytes16 join_mac(const Key& key, const Challenge& challenge, const Join& join);
Bytes16 answer_mac(const Key& key, const Join& join, const Bytes16& digest);
Bytes16 table_digest(const Key& key, const std::vector<Address>& table);

// One rendezvous: lives in its thread until all ranks have their answer or the time is over.
class Root {
 public:
  // `given_up`: it ends before its time when that is true.
  using Flag = std::shared_ptr<std::atomic<bool>>;
  Root(Fd listener, const Key& key, Deadline deadline, Flag given_up);
  void run();
  // What all roots of this process have had to do so far: messages and looks at callers.
  static std::uint64_t work();

 private:
  struct Caller {
    Fd socket = {};
    Challenge challenge = {};
    Join join = {};
    std::size_t received = 0;
    Deadline deadline = {};
    bool joined = false;
    Answer answer = {};
    std::size_t sent = 0;
  };
  bool complete() const { return nranks_ && present_ == nranks_; }
  void serve(int timeout_ms);
  void accept_all();
  bool has_room() const;
  void make_room();
  void watch(int fd, std::uint32_t events, int how) const;
  // False: the caller is done with, one way or the other.
  bool advance(Caller& caller);
  bool enter(Caller& caller);
  // Takes back what callers have said that are gone: their ranks may be started again, elsewhere.
  void forget_dead();
  bool answer(Caller& caller);
  void begin_answers();
  void end_late();

  Acceptor listener_;
  Fd epoll_;
  bool listens_ = true;  // else there is no room for another caller
  Key key_;
  Deadline deadline_;
  const Flag given_up_;
  std::uint32_t nranks_ = 0, present_ = 0;
  std::vector<Address> table_;
  std::vector<bool> taken_;
  std::map<int, Caller> callers_;  // by descriptor
};

}  // namespace flexccl::rendezvous

#endif  // FLEXCCL_RENDEZVOUS_ROOT_H_
