#include "server/session/captured_collectives.h"

#include <utility>

#include "server/session/marked.h"

namespace pyft::server {

void CapturedCollectives::count(Session& session, const One& one) {
  checkpoint::CommunicatorRecovery* const communicators = session.recovery().communicators;
  if (!communicators) return;
  if (one.what == One::What::kCollective)
    communicators->collective(one.comm);
  else
    communicators->message(one.comm, one.peer, one.what == One::What::kSend);
}

void CapturedCollectives::put(Session& session, void* stream, const One& one) {
  if (is_captured(session, static_cast<CUstream>(stream)))
    open_.push_back(one);
  else
    count(session, one);
}

void CapturedCollectives::end(uint64_t graph) {
  All all = std::exchange(open_, {});
  if (!all.empty()) of_[graph] = std::move(all);
}

void CapturedCollectives::instantiate(uint64_t exec, uint64_t graph) {
  const auto found = of_.find(graph);
  if (found == of_.end()) return;
  All all = found->second;
  of_[exec] = std::move(all);
}

void CapturedCollectives::launch(Session& session, void* stream, uint64_t exec) {
  const auto found = of_.find(exec);
  if (found == of_.end()) return;
  session.recovery().commit_output();
  for (const One& one : found->second) put(session, stream, one);
}

}  // namespace pyft::server
