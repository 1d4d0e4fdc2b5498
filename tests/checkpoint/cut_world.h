// What a cut can meet: a program, an agent with other ranks behind it, and deaths, as a model. It
// drives the states of cuts (checkpoint/snapshot/cut_states.h) as Snapshotter does, and checks all
// that they have done by docs/spec/invariants.md.
#ifndef PYFT_TESTS_CHECKPOINT_CUT_WORLD_H_
#define PYFT_TESTS_CHECKPOINT_CUT_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/snapshot/cut_states.h"

namespace checkpoint_test {

using pyft::checkpoint::CutAction;
using pyft::checkpoint::CutActions;
using pyft::checkpoint::CutDecisions;
using pyft::checkpoint::CutFacts;
using pyft::checkpoint::CutRules;
using pyft::checkpoint::CutStates;

enum class What : uint8_t {
  kCut,      // of an optimizer step, and it is due
  kLeftOut,  // one that is not due
  kFull,     // one for want of space: the client waits
  kHashed,
  kNotHashed,  // the streams do not come to their ends
  kCopied,
  kCopiedOther,  // a block has another digest
  kAcknowledge,  // other ranks have what came before the cut
  kPoll,
  kGate,    // pre-images: it must be known what becomes of the cut
  kWanted,  // the client has waited for long
  kCommit,  // the agent decides about the last cut that it knows of
  kAbort,
  kDies,  // this server; the next one replays
  kLive,  // and is done with that
};

// Of the agent, where it is asked.
enum class Answer : uint8_t { kNone, kCommit, kAbort };

struct Event {
  What what;
  Answer answer = Answer::kNone;
};

class World {
 public:
  World(const CutRules& rules, uint64_t cuts) : rules_(rules), cuts_(cuts) {}

  std::vector<Event> possible() const;
  void happen(const Event& event);
  // Others do what they owe, and the agent decides; then nothing may be left undecided.
  void settle(bool commits);
  // Empty, or what does not hold.
  const std::string& broken() const { return broken_; }
  // All that makes a difference to what comes next.
  std::string key() const;

 private:
  using Stage = CutStates::Stage;
  CutFacts facts(uint64_t number, bool full) const { return {number, number * 10, number, full}; }
  bool is_full(uint64_t number) const { return full_cuts_ >> number & 1; }
  bool has_decided() const { return say_.committed >= room_ || say_.aborted >= room_; }
  bool may_decide() const { return staged_ && !has_decided(); }
  bool may_commit() const {
    return !(rules_.shares || rules_.coordinated) || prepared_ == room_ || asked_;
  }
  bool is_open() const { return stage() == Stage::kMaking || stage() == Stage::kCopying; }
  Stage stage() const { return states_.stage(); }
  void check(bool holds, const char* what) {
    if (!holds && broken_.empty()) broken_ = what;
  }
  void apply(const Event& event);
  void perform(const CutActions& todo) {
    for (const CutAction& action : todo) perform(action);
  }
  void perform(const CutAction& action);
  void promote(uint64_t number);
  void comes(bool due, bool full, Answer answer);
  bool is_admitted(const CutFacts& cut, Answer answer);
  void begin(const CutFacts& cut);
  void made(bool whole);
  void finish();
  void look();
  void ask(Answer answer, bool for_room);
  void decide(Answer answer);
  void dies();
  void check_answered();

  const CutRules rules_;
  const uint64_t cuts_;
  CutStates states_;
  CutDecisions say_;
  // The store: the committed snapshot, and the room beside it.
  uint64_t line_ = 0, room_ = 0;
  bool whole_ = false, unfinished_ = false;  // costs are not accounted for yet
  // Of the cut in the room.
  bool full_ = false, owed_ = false, staged_ = false, asked_ = false, unheeded_ = false;
  bool replaying_ = false, died_ = false;
  uint64_t came_ = 0, decided_ = 0, released_ = 0, prepared_ = 0, waited_for_ = 0;
  uint64_t passed_ = 0;                 // the last one of which the agent was told that it is none
  uint64_t known_ = 0, full_cuts_ = 0;  // how many have ever come, and which of them were full
  std::string broken_;
};

}  // namespace checkpoint_test

#endif  // PYFT_TESTS_CHECKPOINT_CUT_WORLD_H_
