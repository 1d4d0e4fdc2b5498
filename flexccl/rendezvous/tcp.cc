#include <arpa/inet.h>

#include <cstdlib>
#include <thread>

#include "core/error.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/root.h"

namespace flexccl::rendezvous {

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
  send_all(socket.get(), &join, sizeof join, {}, deadline);
  Answer answer;
  receive_all(socket.get(), &answer, sizeof answer, deadline, "the rendezvous' answer");
  if (answer.status) {
    answer.text[sizeof answer.text - 1] = 0;
    fail(ncclInvalidUsage, "flexccl: the rendezvous refused rank [", self.rank, "]: ", answer.text);
  }
  std::vector<Address> table(static_cast<std::size_t>(self.nranks));
  receive_all(socket.get(), table.data(), table.size() * sizeof(Address), deadline,
              "the addresses of the ranks");
  if (!equal_macs(answer.mac, answer_mac(key, join, table_digest(key, table))))
    fail(ncclRemoteError, "flexccl: the rendezvous' answer is not signed with the key of the job");
  return table;
}

}  // namespace flexccl::rendezvous
