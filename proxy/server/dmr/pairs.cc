#include "server/dmr/pairs.h"

namespace pyft::server::dmr {

Pairs::Outcome Pairs::add(const Digest& inputs, const Digest& outputs, uint64_t seq,
                          uint64_t name) {
  const std::lock_guard lock(mutex_);
  const auto first = firsts_.find(inputs);
  if (first == firsts_.end()) {
    if (firsts_.size() >= kMost) return {Found::kForgotten};
    firsts_.emplace(inputs, Execution{seq, outputs, name});
    return {Found::kFirst};
  }
  const Execution before = first->second;
  firsts_.erase(first);
  return {before.outputs == outputs ? Found::kEqual : Found::kMismatch, before.seq, before.outputs,
          before.name};
}

}  // namespace pyft::server::dmr
