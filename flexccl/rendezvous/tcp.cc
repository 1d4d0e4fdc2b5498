#include <arpa/inet.h>

#include <cstdlib>
#include <thread>

#include "core/error.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/root.h"

namespace flexccl::rendezvous {
namespace {

void run_root(Fd listener, const Key& key, Deadline deadline) {
  std::thread([root = Root(std::move(listener), key, deadline)]() mutable { root.run(); }).detach();
}

}  // namespace

void start_tcp_root(UniqueId* id, std::uint64_t timeout_ms) {
  const char* text = std::getenv("FLEXCCL_ADDRESS");
  if (inet_pton(AF_INET, text ? text : "127.0.0.1", &id->ipv4) != 1)
    fail(ncclInvalidArgument, "flexccl: FLEXCCL_ADDRESS is [", text, "], not an IPv4 address");
  run_root(listen_tcp(id->ipv4, &id->port), job_key(*id), in_ms(timeout_ms));
}

namespace {

constexpr std::chrono::milliseconds kPause(50);  // until a root that is gone is looked for again

struct Reply {
  Join join;
  Answer answer;
  std::vector<Address> table;
};

// Throws ncclRemoteError when the root is not there, or ends before it has answered.
Reply ask_root(const UniqueId& id, const Key& key, const Member& self, Deadline deadline) {
  const Fd socket = connect_tcp(id.ipv4, id.port, deadline);
  Challenge challenge;
  receive_all(socket.get(), &challenge, sizeof challenge, deadline, "the rendezvous' challenge");
  Reply reply{.join = {.magic = kMagic,
                       .version = kWireVersion,
                       .rank = static_cast<std::uint32_t>(self.rank),
                       .nranks = static_cast<std::uint32_t>(self.nranks),
                       .address = self.address,
                       .mac = {}},
              .answer = {},
              .table = {}};
  reply.join.mac = join_mac(key, challenge, reply.join);
  send_all(socket.get(), &reply.join, sizeof reply.join, {}, deadline);
  receive_all(socket.get(), &reply.answer, sizeof reply.answer, deadline, "the rendezvous' answer");
  if (reply.answer.status) return reply;
  reply.table.resize(static_cast<std::size_t>(self.nranks));
  receive_all(socket.get(), reply.table.data(), reply.table.size() * sizeof(Address), deadline,
              "the addresses of the ranks");
  return reply;
}

// Whoever misses the root opens it again at its place; of several, one can.
void open_again(UniqueId id, const Key& key, Deadline deadline) {
  try {
    run_root(listen_tcp(id.ipv4, &id.port), key, deadline);
  } catch (const Error&) {
    // Another rank has, or the place is on another machine.
  }
}

}  // namespace

std::vector<Address> meet_over_tcp(const UniqueId& id, const Member& self, Deadline deadline) {
  const Key key = job_key(id);
  for (;;) {
    Reply reply;
    try {
      reply = ask_root(id, key, self, deadline);
    } catch (const Error& error) {
      if (!self.repairs || std::chrono::steady_clock::now() + kPause > deadline) throw;
      open_again(id, key, deadline);
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
