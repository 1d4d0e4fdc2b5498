#include "rendezvous/rendezvous.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "base/settings.h"

namespace flexccl {
namespace {

// Empty: the rendezvous is over TCP.
std::string directory_asked_for() {
  const std::string value = settings::rendezvous();
  if (value == "tcp") return "";
  if (value.size() > 5 && value.starts_with("file:")) return value.substr(5);
  fail(ncclInvalidArgument, "flexccl: FLEXCCL_RENDEZVOUS is [", value,
       "], not tcp or file:DIRECTORY");
}

}  // namespace

UniqueId make_unique_id(RendezvousKind kind, std::uint64_t timeout_ms) {
  UniqueId id{.magic = kMagic,
              .version = kWireVersion,
              .kind = kind,
              .comm = random64(),
              .secret = random_bytes16(),
              .ipv4 = 0,
              .port = 0,
              .directory = {}};
  const std::string directory = kind == RendezvousKind::kTcp ? directory_asked_for() : "";
  if (!directory.empty()) {
    id.kind = RendezvousKind::kFile;
    rendezvous::start_file_meeting(&id, directory);
  } else if (kind == RendezvousKind::kTcp) {
    rendezvous::start_tcp_root(&id, timeout_ms);
  }
  return id;
}

UniqueId parse_unique_id(const ncclUniqueId& id) {
  UniqueId parsed;
  std::memcpy(&parsed, &id, sizeof parsed);
  if (parsed.magic != kMagic || parsed.version != kWireVersion)
    fail(ncclInvalidArgument, "flexccl: a unique id with magic [", parsed.magic, "] and version [",
         parsed.version, "] was not made by ncclGetUniqueId of this library");
  if (parsed.kind < RendezvousKind::kMemory || parsed.kind > RendezvousKind::kFile ||
      parsed.directory[sizeof parsed.directory - 1])
    fail(ncclInvalidArgument, "flexccl: a unique id of kind [", int(parsed.kind), "] is damaged");
  return parsed;
}

Key job_key(const UniqueId& id) {
  const char* token = settings::job_token();
  if (!token) return {id.secret};
  const std::string text(token);
  return {keyed_hash({id.secret}, std::as_bytes(std::span(text)))};
}

std::vector<Address> meet(const UniqueId& id, const Member& self, Deadline deadline) {
  if (id.kind == RendezvousKind::kMemory) return rendezvous::meet_in_memory(id, self, deadline);
  if (id.kind == RendezvousKind::kFile) return rendezvous::meet_in_files(id, self, deadline);
  return rendezvous::meet_over_tcp(id, self, deadline);
}

}  // namespace flexccl
