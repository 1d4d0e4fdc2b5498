// How ranks that share nothing but a unique id learn each other's addresses. In memory: ranks are
// threads of one process. TCP: the process that made the id answers on a port of its own. Files: in
// a directory that all ranks see (FLEXCCL_RENDEZVOUS=file:DIRECTORY where the id is made).
#ifndef FLEXCCL_RENDEZVOUS_RENDEZVOUS_H_
#define FLEXCCL_RENDEZVOUS_RENDEZVOUS_H_

#include <functional>
#include <string>
#include <vector>

#include "flexccl.h"
#include "transport/address.h"
#include "transport/socket.h"

namespace flexccl {

enum class RendezvousKind : std::uint16_t { kMemory = 1, kTcp = 2, kFile = 3 };

// The 128 bytes of a unique id. A process that has it may join, unless the job has a token
// (FLEXCCL_JOB_TOKEN): then `secret` alone is worth nothing.
struct UniqueId {
  std::uint32_t magic;
  std::uint16_t version;
  RendezvousKind kind;
  std::uint64_t comm;
  Bytes16 secret;
  std::uint32_t ipv4;
  std::uint16_t port;
  char directory[90];  // kFile; ends with a zero byte
};
static_assert(sizeof(UniqueId) == NCCL_UNIQUE_ID_BYTES);

struct Member {
  int rank, nranks;
  Address address;
  bool repairs = false;      // the process that answers may die, and be started again
  bool comes_again = false;  // its predecessor may have met the others
  // Asked while the others may have met without this rank; true: it has its place among them.
  std::function<bool()> has_place = nullptr;
  // Called several times a second while others have not come; may throw.
  std::function<void()> look = nullptr;
};

// Thrown by meet() when `has_place` has said so.
struct HasPlace {};

// Makes an id; kTcp stands for what FLEXCCL_RENDEZVOUS says. For TCP it also starts the thread that
// answers, for `timeout_ms` at most.
UniqueId make_unique_id(RendezvousKind kind, std::uint64_t timeout_ms);
// Throws ncclInvalidArgument unless the id was made by this version of flexccl.
UniqueId parse_unique_id(const ncclUniqueId& id);
// The key of the communicators that grow from this id.
Key job_key(const UniqueId& id);

// Blocks until all ranks came; the addresses in rank order.
std::vector<Address> meet(const UniqueId& id, const Member& self, Deadline deadline);

namespace rendezvous {
std::vector<Address> meet_in_memory(const UniqueId& id, const Member& self, Deadline deadline);
std::vector<Address> meet_over_tcp(const UniqueId& id, const Member& self, Deadline deadline);
std::vector<Address> meet_in_files(const UniqueId& id, const Member& self, Deadline deadline);
void start_file_meeting(UniqueId* id, const std::string& directory);
void start_tcp_root(UniqueId* id, std::uint64_t timeout_ms);
}  // namespace rendezvous

}  // namespace flexccl

#endif  // FLEXCCL_RENDEZVOUS_RENDEZVOUS_H_
