#include "checkpoint/snapshot/cut_states.h"

namespace pyft::checkpoint {

using Do = CutAction::Do;

// While one waits the next one is left out, but for one that the client waits for.
CutStates::Admission CutStates::admit(const CutFacts& cut, const CutRules& rules) const {
  if (!waits()) return Admission::kTake;
  if (!cut.forced || rules.coordinated) return Admission::kSkip;
  return compared_ && shared_ ? Admission::kAskFirst : Admission::kPromoteFirst;
}

// A cut that waits is decided first: until then a replay must come to it again.
CutActions CutStates::skip(const CutFacts& cut, const CutRules& rules) const {
  CutActions todo{{Do::kSkip, cut.number}};
  if (rules.compares && !cut.forced) todo.push_back({Do::kPass, cut.name});
  if (!waits() || rules.coordinated || cut.forced) todo.push_back({Do::kDecide, cut.number});
  return todo;
}

void CutStates::begin(const CutFacts& cut) {
  cut_ = cut;
  stage_ = Stage::kMaking;
  compared_ = shared_ = acknowledged_ = snapshotted_ = waited_ = false;
}

// The digests are all there is to compare, so that the copies may still be under way. Not for a
// forced cut: a client that waits for space does not wait for other ranks, which may have no such
// cut. Where all have to hold the same one it does, for a while: nothing else makes room.
CutActions CutStates::hashed(bool whole, const CutRules& rules) {
  stage_ = Stage::kCopying;
  shared_ = rules.shares;
  if (!(rules.compares || rules.shares) || (cut_.forced && !rules.coordinated)) return {};
  compared_ = whole;
  if (!whole) return {{Do::kPass, cut_.name}};
  asked_ = cut_.name;
  return {{Do::kStage, cut_.name}};
}

CutActions CutStates::made(bool whole, bool acknowledged) {
  stage_ = Stage::kNone;
  snapshotted_ = whole;
  if (!whole) {
    CutActions todo{{Do::kDrop, cut_.number}, {Do::kCancel, cut_.number}};
    if (compared_) todo.push_back({Do::kPass, cut_.name});  // it is none after all
    todo.push_back({Do::kDecide, cut_.number});
    return todo;
  }
  last_ = cut_.number;
  // A client that waits for space does not wait for other ranks.
  acknowledged_ = acknowledged || cut_.forced;
  if (!compared_ && acknowledged_) {
    committed_ = cut_.number;
    return {{Do::kPromote, cut_.number}, {Do::kDecide, cut_.number, true}};
  }
  waited_ = true;
  stage_ = Stage::kWaiting;
  return {{Do::kWait, cut_.number}};
}

CutActions CutStates::finish() {
  if (!snapshotted_ || waited_) return {};
  return {{Do::kRelease, cut_.seq}};
}

CutActions CutStates::look(const CutDecisions& say, bool replaying) {
  if (!waits()) return {};
  if (is_aborted(say)) return abort();
  if (replaying || !acknowledged_) return {};
  if (compared_ && prepared_ != asked_) {
    prepared_ = asked_;
    return {{Do::kPrepare, asked_}};
  }
  return is_committed(say) ? promote() : CutActions{};
}

CutActions CutStates::ask() const {
  return {{Do::kAsk, asked_}};
}

CutActions CutStates::answered(const CutDecisions& say) {
  if (is_committed(say)) return promote();
  return is_aborted(say) ? abort() : CutActions{};
}

CutActions CutStates::unanswered(bool for_room) const {
  CutActions todo{{Do::kCancel, cut_.number}};
  if (for_room) todo.push_back({Do::kDecide, cut_.number});
  return todo;
}

CutActions CutStates::promote() {
  stage_ = Stage::kNone;
  committed_ = cut_.number;
  return {{Do::kPromote, cut_.number}, {Do::kDecide, cut_.number, true}, {Do::kRelease, cut_.seq}};
}

// It fits no cut of the other ranks.
CutActions CutStates::abort() {
  stage_ = Stage::kNone;
  last_ = committed_;
  return {{Do::kDrop, cut_.number}, {Do::kSkip, cut_.number}, {Do::kDecide, cut_.number}};
}

}  // namespace pyft::checkpoint
