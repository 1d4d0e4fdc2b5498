// What becomes of a cut, as a pure machine: what has happened goes in, what is to be done comes
// out. No clock, no memory, no threads, no I/O: Snapshotter has those, and does what comes out, in
// order. tests/checkpoint/cut_states_test.cc tries every order. docs/concepts/commit.md.
//
// The store has room for one cut beside the committed snapshot: it is being made, or it waits.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_CUT_STATES_H_
#define PYFT_CHECKPOINT_SNAPSHOT_CUT_STATES_H_

#include <cstdint>
#include <vector>

namespace pyft::checkpoint {

// A cut, as far as it matters for what becomes of it.
struct CutFacts {
  uint64_t number = 0;
  uint64_t seq = 0;     // its entry
  uint64_t name = 0;    // what the agent calls it; it only grows
  bool forced = false;  // the client made it for want of space
};

// What the agent has to do with the cuts of this rank.
struct CutRules {
  bool compares = false;     // with those of other ranks
  bool shares = false;       // they name each other's contents
  bool coordinated = false;  // all ranks have to hold the same one
};

// The names of the last cuts that the agent has decided about.
struct CutDecisions {
  uint64_t committed = 0, aborted = 0;
};

struct CutAction {
  enum class Do : uint8_t {
    kStage,    // tell the agent where the table of the cut is
    kPass,     // tell it that the cut of this name is none
    kPrepare,  // tell it that the cut is whole, and nothing from before it unacknowledged
    kAsk,      // it must decide now
    kPromote,  // the cut becomes the committed snapshot
    kDrop,     // its place in the store is free again
    kCancel,   // it could not be snapshotted: that is counted and said
    kSkip,     // it was left out: that is counted
    kDecide,   // the client learns of it
    kRelease,  // the journal before this entry is not needed any more
    kWait,  // it waits from now on, and the thread that looks after that may sleep; always the last
  };
  Do what;
  uint64_t about = 0;        // kPass, kStage, kPrepare, kAsk: name; kRelease: entry; else number
  bool snapshotted = false;  // kDecide
};
using CutActions = std::vector<CutAction>;

class CutStates {
 public:
  enum class Stage : uint8_t {
    kNone,     // there is none, or it has ended
    kMaking,   // its memory is being hashed and copied, or that is put off
    kCopying,  // it is hashed, and the rest is copied while the program goes on
    kWaiting,  // whole: for other ranks, or for what they lack from before it
  };
  // What is to be done about a cut that comes.
  enum class Admission : uint8_t {
    kTake,
    kSkip,
    kAskFirst,      // about the one that waits: the agent alone may decide
    kPromoteFirst,  // the one that waits
  };

  // `committed`: the number of the committed snapshot's cut, 0 if there is none.
  explicit CutStates(uint64_t committed = 0) : committed_(committed), last_(committed) {}

  // An earlier server, or this one, has made it.
  bool is_known(uint64_t number) const { return number <= last_; }
  uint64_t last() const { return last_; }
  Stage stage() const { return stage_; }
  const CutFacts& cut() const { return cut_; }
  bool waits() const { return stage_ == Stage::kWaiting; }
  // Of the one that waits: the agent has a say, other ranks' cuts depend on it, nothing from before
  // it is unacknowledged.
  bool is_compared() const { return compared_; }
  bool is_shared() const { return shared_; }
  bool is_acknowledged() const { return acknowledged_; }
  // The last cut that the agent was told of.
  uint64_t asked() const { return asked_; }
  bool is_committed(const CutDecisions& say) const { return !compared_ || say.committed >= asked_; }
  bool is_aborted(const CutDecisions& say) const {
    return compared_ && say.aborted >= asked_ && !is_committed(say);
  }
  // What the last one that was made has come to, for its costs.
  bool has_snapshotted() const { return snapshotted_; }

  // A cut comes. Only while none is being made.
  Admission admit(const CutFacts& cut, const CutRules& rules) const;
  // It is left out.
  CutActions skip(const CutFacts& cut, const CutRules& rules) const;
  // It is made. Only while none waits.
  void begin(const CutFacts& cut);
  // Its table is in the store, or it cannot be hashed.
  CutActions hashed(bool whole, const CutRules& rules);
  // All of it is in the store, or not. `acknowledged`: by all, what was sent before it.
  CutActions made(bool whole, bool acknowledged);
  // Whatever comes next may be done. What had to be kept for it until now is not any more.
  CutActions finish();

  // About the one that waits. Nothing from before it is unacknowledged any more.
  void acknowledge() { acknowledged_ = true; }
  // To be asked until nothing is to be done. In a replay nothing is promoted.
  CutActions look(const CutDecisions& say, bool replaying);
  CutActions ask() const;
  // The agent's answer, if it is there.
  CutActions answered(const CutDecisions& say);
  // It has not answered in time: what the client waits for is decided without it, and the cut
  // waits on. `for_room`: the client waits for this one.
  CutActions unanswered(bool for_room) const;
  // Nothing waits for the comparison.
  CutActions promote();

 private:
  CutActions abort();

  uint64_t committed_;
  uint64_t last_;  // the last one that is whole in the store
  Stage stage_ = Stage::kNone;
  CutFacts cut_;
  bool compared_ = false, shared_ = false, acknowledged_ = false;
  bool snapshotted_ = false, waited_ = false;  // until finish()
  uint64_t asked_ = 0, prepared_ = 0;          // names that the agent was told
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_CUT_STATES_H_
