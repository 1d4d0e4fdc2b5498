#include "rendezvous/rendezvous.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "core/error.h"

namespace flexccl {

UniqueId make_unique_id(RendezvousKind kind, std::uint64_t timeout_ms) {
  UniqueId id{.magic = kMagic,
              .version = kWireVersion,
              .kind = kind,
              .comm = random64(),
              .secret = random_bytes16(),
              .ipv4 = 0,
              .port = 0,
              .reserved = {}};
  if (kind == RendezvousKind::kTcp) rendezvous::start_tcp_root(&id, timeout_ms);
  return id;
}

UniqueId parse_unique_id(const ncclUniqueId& id) {
  UniqueId parsed;
  std::memcpy(&parsed, &id, sizeof parsed);
  if (parsed.magic != kMagic || parsed.version != kWireVersion)
    fail(ncclInvalidArgument, "flexccl: a unique id with magic [", parsed.magic, "] and version [",
         parsed.version, "] was not made by ncclGetUniqueId of this library");
  return parsed;
}

Key job_key(const UniqueId& id) {
  const char* token = std::getenv("FLEXCCL_JOB_TOKEN");
  if (!token) return {id.secret};
  const std::string text(token);
  return {keyed_hash({id.secret}, std::as_bytes(std::span(text)))};
}

std::vector<Address> meet(const UniqueId& id, const Member& self, Deadline deadline) {
  return id.kind == RendezvousKind::kMemory ? rendezvous::meet_in_memory(id, self, deadline)
                                            : rendezvous::meet_over_tcp(id, self, deadline);
}

}  // namespace flexccl
