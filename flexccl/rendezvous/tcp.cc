#include <arpa/inet.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/settings.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/root.h"
#include "transport/fault.h"

namespace flexccl::rendezvous {
namespace {

void run_root(Fd listener, const Key& key, Deadline deadline, const Root::Flag& given_up) {
  std::thread([root = Root(std::move(listener), key, deadline, given_up)]() mutable {
    root.run();
  }).detach();
}

}  // namespace

void start_tcp_root(UniqueId* id, std::uint64_t timeout_ms) {
  const char* text = settings::address();
  if (inet_pton(AF_INET, text, &id->ipv4) != 1)
    fail(ncclInvalidArgument, "flexccl: FLEXCCL_ADDRESS is [", text, "], not an IPv4 address");
  run_root(listen_tcp(id->ipv4, &id->port), job_key(*id), in_ms(timeout_ms),
           std::make_shared<std::atomic<bool>>(false));
}

namespace {

constexpr std::chrono::milliseconds kPause(50);  // until a root that is gone is looked for again
constexpr std::uint64_t kChallengeMs = 5000;     // in that time a root greets, if it is one
constexpr std::uint64_t kAskMs = 100;            // whether the others have met, and give a place

struct Reply {
  Join join;
  Answer answer;
  std::vector<Address> table;
};

// Throws ncclRemoteError when the root is not there, or ends before it has answered.
Reply ask_root(const UniqueId& id, const Key& key, const Member& self, const WaitUntil& wait) {
  const Fd socket = connect_tcp(id.ipv4, id.port, wait);
  Challenge challenge;
  WaitUntil greeting = wait;
  if (self.repairs) greeting.until = std::min(greeting.until, in_ms(kChallengeMs));
  receive_all(socket.get(), &challenge, sizeof challenge, greeting, "the rendezvous' challenge");
  Reply reply{.join = {.magic = kMagic,
                       .version = kWireVersion,
                       .rank = static_cast<std::uint32_t>(self.rank),
                       .nranks = static_cast<std::uint32_t>(self.nranks),
                       .address = self.address,
                       .mac = {}},
              .answer = {},
              .table = {}};
  reply.join.mac = join_mac(key, challenge, reply.join);
  fault_in_init(id.comm, self.rank);
  send_all(socket.get(), &reply.join, sizeof reply.join, {}, wait);
  fault_in_init(id.comm, self.rank);
  receive_all(socket.get(), &reply.answer, sizeof reply.answer, wait, "the rendezvous' answer");
  if (reply.answer.status) return reply;
  reply.table.resize(static_cast<std::size_t>(self.nranks));
  receive_all(socket.get(), reply.table.data(), reply.table.size() * sizeof(Address), wait,
              "the addresses of the ranks");
  return reply;
}

// A rank that misses the root opens it again at its place; of several, one can.
void open_again(UniqueId id, const Key& key, Deadline deadline, const Root::Flag& given_up) {
  try {
    run_root(listen_tcp(id.ipv4, &id.port), key, deadline, given_up);
  } catch (const Error&) {
    // Another rank has, or the place is on another machine.
  }
}

// The roots that a rank opens are there for as long as it is at the meeting itself.
struct Opened {
  Opened() = default;
  ~Opened() { *given_up = true; }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  const Root::Flag given_up = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

std::vector<Address> meet_over_tcp(const UniqueId& id, const Member& self, Deadline deadline) {
  const Key key = job_key(id);
  const Opened opened;
  bool lost =
      self.comes_again;  // a root has ended without an answer: it may have given one to the others
  Deadline next{};
  const auto look = [&] {
    if (self.look) self.look();
    if (!lost || !self.has_place || std::chrono::steady_clock::now() < next) return;
    if (self.has_place()) throw HasPlace();
    next = in_ms(kAskMs);
  };
  for (;;) {
    look();
    Reply reply;
    try {
      reply = ask_root(id, key, self, {deadline, look});
    } catch (const Error& error) {
      const bool over = std::chrono::steady_clock::now() + kPause > deadline;
      if (!self.repairs || error.code != ncclRemoteError || over) throw;
      lost = true;
      open_again(id, key, deadline, opened.given_up);
      std::this_thread::sleep_for(kPause);
      continue;
    }
    // When the root has gone, its port may be another job's, which knows nothing of this rank.
    if (reply.answer.status && lost && std::chrono::steady_clock::now() + kPause < deadline) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    if (reply.answer.status) {
      reply.answer.text[sizeof reply.answer.text - 1] = 0;
      fail(ncclInvalidUsage, "flexccl: the rendezvous refused rank [", self.rank,
           "]: ", reply.answer.text);
    }
    if (!equal_macs(reply.answer.mac, answer_mac(key, reply.join, table_digest(key, reply.table))))
      fail(ncclRemoteError,
           "flexccl: the rendezvous' answer is not signed with the key of the job");
    return reply.table;
  }
}

}  // namespace flexccl::rendezvous
