#include "server/recovery/reads.h"

#include "server/handlers/handlers.h"

namespace pyft::server {

namespace {

bool is_harmless_mark(uint16_t call) {
  switch (static_cast<ring::Mark>(call)) {
    case ring::Mark::kAlloc:
    case ring::Mark::kFree:
    case ring::Mark::kFence:
    case ring::Mark::kObserved:
    case ring::Mark::kPad:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool only_reads(const Session& session, const ring::EntryView& entry) {
  const uint16_t call = entry.header.call;
  if (call < ring::kFirstCall) return is_harmless_mark(call);
  if (call == static_cast<uint16_t>(Call::pyftReadDevice)) return true;
  cmd::cudaMemcpyAsync copy{};
  return call == static_cast<uint16_t>(Call::cudaMemcpyAsync) && read_body(entry.body, &copy) &&
         session.in_pinned(copy.dst, copy.bytes);
}

// Variables go with their module.
bool takes_memory_away(const ring::EntryView& entry) {
  const auto call = static_cast<Call>(entry.header.call);
  return call == Call::cudaFree || call == Call::cuMemUnmap || call == Call::cuMemSetAccess ||
         call == Call::cuModuleUnload;
}

}  // namespace pyft::server
