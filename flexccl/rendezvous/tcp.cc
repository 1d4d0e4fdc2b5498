#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "core/error.h"
#include "rendezvous/rendezvous.h"

namespace flexccl::rendezvous {
namespace {

constexpr std::uint32_t kMaxRanks = 65536;
constexpr std::uint64_t kJoinMs = 5000;  // a caller has this long to say who it is
constexpr std::size_t kMaxCallers = kMaxRanks + 1024;

struct Join {
  std::uint32_t magic, version, rank, nranks;
  Address address;
  Bytes16 mac;  // over the challenge's nonce and everything above
};
static_assert(sizeof(Join) == 64);

// Followed by the addresses when status is 0; `mac` covers the caller's mac and the addresses.
struct Answer {
  std::uint32_t magic, status;
  Bytes16 mac;
  char text[104];
};
static_assert(sizeof(Answer) == 128);

Bytes16 join_mac(const Key& key, const Challenge& challenge, const Join& join) {
  std::byte text[sizeof challenge.nonce + offsetof(Join, mac)];
  std::memcpy(text, &challenge.nonce, sizeof challenge.nonce);
  std::memcpy(text + sizeof challenge.nonce, &join, offsetof(Join, mac));
  return keyed_hash(key, text);
}

Bytes16 answer_mac(const Key& key, const Join& join, const std::vector<Address>& table) {
  std::vector<std::byte> text(sizeof join.mac + table.size() * sizeof(Address));
  std::memcpy(text.data(), &join.mac, sizeof join.mac);
  std::memcpy(text.data() + sizeof join.mac, table.data(), table.size() * sizeof(Address));
  return keyed_hash(key, text);
}

struct Caller {
  Fd socket = {};
  Challenge challenge;
  Join join;
  std::size_t received = 0;
  Deadline deadline = {};
  bool joined = false;
};

// One rendezvous: lives in its thread until all ranks have their answer or the time is over.
class Root {
 public:
  Root(Fd listener, const Key& key, Deadline deadline)
      : listener_(std::move(listener)), key_(key), deadline_(deadline) {}

  void run() {
    while (!complete() && std::chrono::steady_clock::now() < deadline_) {
      std::vector<pollfd> looks{{listener_.get(), POLLIN, 0}};
      for (const Caller& caller : callers_)
        if (!caller.joined) looks.push_back({caller.socket.get(), POLLIN, 0});
      poll(looks.data(), looks.size(), 100);
      accept_all();
      std::erase_if(callers_, [this](Caller& caller) { return !advance(caller); });
    }
    if (complete()) answer_all();
  }

 private:
  bool complete() const { return nranks_ && present_ == nranks_; }

  void accept_all() {
    for (;;) {
      Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) return;
      Caller caller{.challenge = {kMagic, kWireVersion, random_bytes16()}, .join = {}};
      caller.deadline = in_ms(kJoinMs);
      if (callers_.size() >= kMaxCallers ||
          send(socket.get(), &caller.challenge, sizeof caller.challenge, MSG_NOSIGNAL) < 0)
        continue;
      caller.socket = std::move(socket);
      callers_.push_back(std::move(caller));
    }
  }

  bool advance(Caller& caller) {
    if (caller.joined) return true;
    auto* to = reinterpret_cast<char*>(&caller.join) + caller.received;
    const long got =
        receive_some(caller.socket.get(), to, sizeof caller.join - caller.received, nullptr);
    if (got > 0) caller.received += static_cast<std::size_t>(got);
    if (caller.received < sizeof caller.join)
      return got != 0 && std::chrono::steady_clock::now() < caller.deadline;
    const Join& join = caller.join;
    if (join.magic != kMagic || !equal_macs(join.mac, join_mac(key_, caller.challenge, join)))
      return refuse(caller, "the key of rank [%u] is not the key of the job", join.rank, 0);
    return enter(caller);
  }

  bool enter(Caller& caller) {
    const Join& join = caller.join;
    if (!join.nranks || join.nranks > kMaxRanks || join.rank >= join.nranks)
      return refuse(caller, "rank [%u] of [%u] cannot be", join.rank, join.nranks);
    if (!nranks_) nranks_ = join.nranks, table_.resize(nranks_), taken_.resize(nranks_);
    if (join.nranks != nranks_)
      return refuse(caller, "this rank says there are [%u] ranks, an earlier one said [%u]",
                    join.nranks, nranks_);
    if (taken_[join.rank])
      return refuse(caller, "two callers say they are rank [%u] of [%u]", join.rank, nranks_);
    taken_[join.rank] = true, table_[join.rank] = join.address, ++present_;
    return caller.joined = true;
  }

  static bool refuse(const Caller& caller, const char* format, unsigned a, unsigned b) {
    Answer answer{kMagic, 1, {}, {}};
    std::snprintf(answer.text, sizeof answer.text, format, a, b);
    send(caller.socket.get(), &answer, sizeof answer, MSG_NOSIGNAL);
    return false;
  }

  void answer_all() {
    for (const Caller& caller : callers_) {
      if (!caller.joined) continue;
      const Answer answer{kMagic, 0, answer_mac(key_, caller.join, table_), {}};
      try {
        send_all(caller.socket.get(), &answer, sizeof answer);
        send_all(caller.socket.get(), table_.data(), table_.size() * sizeof(Address));
      } catch (const Error&) {
        // That rank is gone; the others will find out when they connect to it.
      }
    }
  }

  Fd listener_;
  Key key_;
  Deadline deadline_;
  std::uint32_t nranks_ = 0, present_ = 0;
  std::vector<Address> table_;
  std::vector<bool> taken_;
  std::vector<Caller> callers_;
};

}  // namespace

void start_tcp_root(UniqueId* id, std::uint64_t timeout_ms) {
  const char* text = std::getenv("FLEXCCL_ADDRESS");
  if (inet_pton(AF_INET, text ? text : "127.0.0.1", &id->ipv4) != 1)
    fail(ncclInvalidArgument, "flexccl: FLEXCCL_ADDRESS is [", text, "], not an IPv4 address");
  Fd listener = listen_tcp(id->ipv4, &id->port);
  std::thread([root = Root(std::move(listener), job_key(*id), in_ms(timeout_ms))]() mutable {
    root.run();
  }).detach();
}

std::vector<Address> meet_over_tcp(const UniqueId& id, const Member& self, Deadline deadline) {
  const Key key = job_key(id);
  const Fd socket = connect_tcp(id.ipv4, id.port, deadline);
  Challenge challenge;
  receive_all(socket.get(), &challenge, sizeof challenge, deadline, "the rendezvous' challenge");
  Join join{.magic = kMagic,
            .version = kWireVersion,
            .rank = static_cast<std::uint32_t>(self.rank),
            .nranks = static_cast<std::uint32_t>(self.nranks),
            .address = self.address,
            .mac = {}};
  join.mac = join_mac(key, challenge, join);
  send_all(socket.get(), &join, sizeof join);
  Answer answer;
  receive_all(socket.get(), &answer, sizeof answer, deadline, "the rendezvous' answer");
  if (answer.status) {
    answer.text[sizeof answer.text - 1] = 0;
    fail(ncclInvalidUsage, "flexccl: the rendezvous refused rank [", self.rank, "]: ", answer.text);
  }
  std::vector<Address> table(static_cast<std::size_t>(self.nranks));
  receive_all(socket.get(), table.data(), table.size() * sizeof(Address), deadline,
              "the addresses of the ranks");
  if (!equal_macs(answer.mac, answer_mac(key, join, table)))
    fail(ncclRemoteError, "flexccl: the rendezvous' answer is not signed with the key of the job");
  return table;
}

}  // namespace flexccl::rendezvous
