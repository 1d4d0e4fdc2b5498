// Whether the log has room until the optimizer's next cut, by how much the last step has needed.
//
// Where all ranks have to hold the same cut, one in the middle of a step is a bad one: it fits no
// other rank's, it copies what the step has made, and meanwhile other ranks wait for this one in a
// collective. So none is made as long as the next step's cut comes in time.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_STEP_ROOM_H_
#define PYFT_CHECKPOINT_SNAPSHOT_STEP_ROOM_H_

#include <cstdint>

namespace pyft::checkpoint {

// How much of what has to be kept there was at a cut: positions, which only grow.
struct LogUse {
  uint64_t step = 0, ring = 0, arena = 0, journal = 0;
};

class StepRoom {
 public:
  // `room`: of each kind; 0: there is none. `line`: the committed snapshot's cut.
  StepRoom(const LogUse& room, const LogUse& line) : room_(room), line_(line) {}
  // A step's cut has come, snapshotted or not.
  void step(const LogUse& cut);
  void line(const LogUse& cut) { line_ = cut; }
  // Whether a cut that comes ahead of need can be left out.
  bool lasts(const LogUse& now) const;

 private:
  bool lasts(uint64_t LogUse::* kind, const LogUse& now) const;

  LogUse room_, line_;
  LogUse step_, length_;  // the last step's cut, and what lay before it
  uint64_t steps_ = 0;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_STEP_ROOM_H_
