// Memory the client maps itself. Ranges must lie in the device window; what overlaps what, the
// backend judges.
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "server/handlers/handlers.h"
#include "server/handlers/live_objects.h"

namespace pyft::server {
namespace {

struct Mapped {
  struct Mapping {
    uint64_t bytes;
    uint64_t handle, number;   // of the memory, and which of those with that handle
    bool has_contents;         // it is, or was, accessible to the program
    bool is_restored = false;  // it may only be read, but its contents are written now
  };
  std::map<uint64_t, Mapping> by_address;

  // What begins in the range; the backend has seen to it that it ends there as well.
  template <class Body>
  void within(uint64_t address, uint64_t bytes, Body body) {
    for (auto it = by_address.lower_bound(address);
         it != by_address.end() && it->first - address < bytes;)
      body(it++);
  }
};

struct Created {
  struct Memory {
    CUmemGenericAllocationHandle memory;
    uint64_t number;
    bool has_contents = false;  // some mapping of it has, or had
    uint32_t readable = 0;      // mappings that have
  };
  std::unordered_map<uint64_t, Memory> by_handle;
  std::unordered_set<uint64_t> out_of_reach;  // handles: contents, and no mapping that has them
  uint64_t made = 0;

  // By how many more of its mappings a memory can be read. It may have been released before.
  void count(const Mapped::Mapping& mapping, int more) {
    const auto found = by_handle.find(mapping.handle);
    if (found == by_handle.end() || found->second.number != mapping.number) return;
    Memory& memory = found->second;
    memory.has_contents = true;
    memory.readable += static_cast<uint32_t>(more);
    if (memory.readable)
      out_of_reach.erase(mapping.handle);
    else
      out_of_reach.insert(mapping.handle);
  }
};

CUmemLocation location(const Session& session) {
  CUmemLocation place{};
  place.type = CU_MEM_LOCATION_TYPE_DEVICE;
  place.id = session.ordinal();
  return place;
}

CUresult set_access(const Session& session, uint64_t address, uint64_t bytes, uint32_t flags) {
  CUmemAccessDesc access{};
  access.location = location(session);
  access.flags = static_cast<CUmemAccess_flags>(flags);
  return session.backend().cuMemSetAccess(address, bytes, &access, 1);
}

Status outside(const char* call, uint64_t address, uint64_t bytes) {
  return Status::broken(std::string(call) + " of [" + std::to_string(bytes) + "] bytes at [" +
                        std::to_string(address) + "] lies outside the device window");
}

}  // namespace

void accessible_mappings(Session& session, std::vector<checkpoint::MemoryRange>* ranges) {
  for (const auto& [address, mapping] : session.state<Mapped>().by_address)
    if (mapping.has_contents) ranges->push_back({address, mapping.bytes});
}

std::string unmapped_contents(Session& session) {
  const auto& handles = session.state<Created>().out_of_reach;
  if (handles.empty()) return {};
  return "memory [" + std::to_string(*handles.begin()) +
         "], which the program has unmapped and not released, cannot be read";
}

int protect_mappings(Session& session) {
  for (auto& [address, mapping] : session.state<Mapped>().by_address) {
    if (!std::exchange(mapping.is_restored, false)) continue;
    const int code = set_access(session, address, mapping.bytes, CU_MEM_ACCESS_FLAGS_PROT_READ);
    if (code) return code;
  }
  return 0;
}

Status do_cuMemCreate(Session& session, const EntryHeader& header, const cmd::cuMemCreate& c, Body,
                      Body) {
  Created& created = session.state<Created>();
  if (Handle{c.handle}.kind() != HandleKind::kPhysicalMemory ||
      created.by_handle.contains(c.handle))
    return bad_handle(c.handle);
  CUmemGenericAllocationHandle memory{};
  const int code = create_memory(session, c.bytes, &memory);
  if (code == 0) created.by_handle[c.handle] = {memory, ++created.made};
  return finish(session, header, "cuMemCreate", Domain::kCuda, code);
}

Status do_cuMemRelease(Session& session, const EntryHeader& header, const cmd::cuMemRelease& c,
                       Body, Body) {
  Created& created = session.state<Created>();
  const auto found = created.by_handle.find(c.handle);
  if (found == created.by_handle.end()) return bad_handle(c.handle);
  const int code = session.backend().cuMemRelease(found->second.memory);
  created.by_handle.erase(found);
  created.out_of_reach.erase(c.handle);
  return finish(session, header, "cuMemRelease", Domain::kCuda, code);
}

Status do_cuMemMap(Session& session, const EntryHeader& header, const cmd::cuMemMap& c, Body,
                   Body) {
  if (!session.in_device_window(c.address, c.bytes)) return outside("cuMemMap", c.address, c.bytes);
  const auto& created = session.state<Created>().by_handle;
  const auto found = created.find(c.handle);
  if (found == created.end()) return bad_handle(c.handle);
  const int code =
      session.backend().cuMemMap(c.address, c.bytes, c.offset, found->second.memory, 0);
  if (code == 0)
    session.state<Mapped>().by_address[c.address] = {c.bytes, c.handle, found->second.number,
                                                     false};
  return finish(session, header, "cuMemMap", Domain::kCuda, code);
}

// As with cudaFree: unmapping is not documented to wait for running work.
Status do_cuMemUnmap(Session& session, const EntryHeader& header, const cmd::cuMemUnmap& c, Body,
                     Body) {
  if (!session.in_device_window(c.address, c.bytes))
    return outside("cuMemUnmap", c.address, c.bytes);
  int code = session.backend().cuCtxSynchronize();
  if (code == 0) code = session.backend().cuMemUnmap(c.address, c.bytes);
  Mapped& mapped = session.state<Mapped>();
  if (code == 0)
    mapped.within(c.address, c.bytes, [&](auto it) {
      if (it->second.has_contents) session.state<Created>().count(it->second, -1);
      mapped.by_address.erase(it);
    });
  return finish(session, header, "cuMemUnmap", Domain::kCuda, code);
}

// Snapshots read what the program has taken its own access from: kernels can read it then, too.
Status do_cuMemSetAccess(Session& session, const EntryHeader& header, const cmd::cuMemSetAccess& c,
                         Body, Body) {
  if (!session.in_device_window(c.address, c.bytes))
    return outside("cuMemSetAccess", c.address, c.bytes);
  const bool may_write = c.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const bool is_restored = !may_write && session.recovery().restores_objects();
  const bool accessible = c.flags & CU_MEM_ACCESS_FLAGS_PROT_READ;
  Mapped& mapped = session.state<Mapped>();
  bool has_contents = accessible || is_restored;
  mapped.within(c.address, c.bytes, [&](auto it) { has_contents |= it->second.has_contents; });
  uint32_t flags = c.flags;
  if (!accessible && has_contents) flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  if (is_restored) flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const int code = set_access(session, c.address, c.bytes, flags);
  if (code == 0)
    mapped.within(c.address, c.bytes, [&](auto it) {
      if ((accessible || is_restored) && !std::exchange(it->second.has_contents, true))
        session.state<Created>().count(it->second, 1);
      it->second.is_restored = is_restored;
    });
  return finish(session, header, "cuMemSetAccess", Domain::kCuda, code);
}

}  // namespace pyft::server
