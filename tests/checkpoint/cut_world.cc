#include "checkpoint/cut_world.h"

#include <algorithm>

namespace checkpoint_test {

using Do = CutAction::Do;

std::vector<Event> World::possible() const {
  std::vector<Event> events;
  const auto each_answer = [&](What what) {
    for (const Answer answer : {Answer::kNone, Answer::kCommit, Answer::kAbort})
      events.push_back({what, answer});
  };
  if (stage() == Stage::kMaking) events.insert(events.end(), {{What::kHashed}, {What::kNotHashed}});
  if (stage() == Stage::kCopying)
    events.insert(events.end(), {{What::kCopied}, {What::kCopiedOther}});
  // In a replay the same cuts come again, but for how often they are due.
  const bool again = came_ < known_, full = is_full(came_ + 1);
  if (!is_open() && came_ < cuts_) {
    if (!again || !full) events.insert(events.end(), {{What::kCut}, {What::kLeftOut}});
    if (!again || full) each_answer(What::kFull);
  }
  if (room_ && owed_) events.push_back({What::kAcknowledge});
  if (states_.waits()) {
    events.push_back({What::kPoll});
    if (rules_.shares) each_answer(What::kGate);
    if (full_) each_answer(What::kWanted);
  }
  if (may_decide()) events.push_back({What::kAbort});
  if (may_decide() && may_commit()) events.push_back({What::kCommit});
  if (!died_) events.push_back({What::kDies});
  if (replaying_) events.push_back({What::kLive});
  return events;
}

void World::happen(const Event& event) {
  apply(event);
  const uint64_t last = room_ && whole_ ? room_ : line_;
  check(is_open() || states_.last() == last, "it is not known what is whole in the store");
}

void World::apply(const Event& event) {
  switch (event.what) {
    case What::kCut:
    case What::kLeftOut:
    case What::kFull:
      return comes(event.what != What::kLeftOut, event.what == What::kFull, event.answer);
    case What::kHashed:
      room_ = states_.cut().number;
      perform(states_.hashed(true, rules_));
      return check(!staged_ || say_.committed < room_ || died_, "committed before it was staged");
    case What::kNotHashed:
      room_ = states_.cut().number;
      perform(states_.hashed(false, rules_));
      check(!staged_, "I9: staged, and not hashed");
      return made(false);
    case What::kCopied:
    case What::kCopiedOther:
      return made(event.what == What::kCopied);
    case What::kAcknowledge:
      owed_ = false;
      return;
    case What::kPoll:
      return look();
    case What::kGate:
      look();
      if (states_.waits() && states_.is_compared() && states_.is_shared() && !replaying_)
        ask(event.answer, false);
      return;
    case What::kWanted:
      look();
      if (states_.waits() && !replaying_ && states_.is_acknowledged()) {
        ask(event.answer, true);
        check(decided_ >= waited_for_, "I8: the client waits for an agent that does not answer");
      }
      return check_answered();
    case What::kCommit:
      return decide(Answer::kCommit);
    case What::kAbort:
      return decide(Answer::kAbort);
    case What::kDies:
      return dies();
    case What::kLive:
      replaying_ = false;
      return;
  }
}

void World::perform(const CutAction& action) {
  switch (action.what) {
    case Do::kStage:
      check(room_ == action.about && !whole_, "what is staged is not what is being made");
      staged_ = true;
      return;
    case Do::kPass:
      passed_ = action.about;
      if (action.about == room_) staged_ = false;
      return;
    case Do::kPrepare:
      check(staged_ && whole_ && room_ == action.about, "what is prepared is not there");
      check(!owed_ || full_, "I3: prepared, and something is owed from before it");
      check(prepared_ < action.about, "prepared twice");
      prepared_ = action.about;
      return;
    case Do::kAsk:
      return check(room_ != 0 && whole_, "a decision is asked for about nothing");
    case Do::kPromote:
      return promote(action.about);
    case Do::kDrop:
      check(room_ == action.about, "I7: something else is dropped than what is in the room");
      room_ = 0;
      whole_ = staged_ = false;
      return;
    case Do::kDecide:
      check(action.snapshotted == (action.about == line_), "the client is told what is not so");
      check(!room_ || action.about <= room_ || rules_.coordinated || is_full(action.about),
            "a replay does not come to the cut that waits, since a later one is decided");
      decided_ = std::max(decided_, action.about);
      return;
    case Do::kRelease:
      check(action.about <= line_ * 10, "I1: the journal is released behind the line");
      released_ = std::max(released_, action.about);
      return;
    case Do::kWait:
      return check(room_ == action.about && whole_, "I1: what waits is not whole");
    case Do::kCancel:
    case Do::kSkip:
      return;
  }
}

void World::promote(uint64_t number) {
  check(room_ == number && whole_, "I1: what is promoted is not whole in the store");
  check(number > line_, "I7: the line goes back");
  check(!owed_ || full_ || asked_ || unheeded_, "I3: promoted, and something is owed");
  const bool has_say = (rules_.compares || rules_.shares) && (!full_ || rules_.coordinated);
  check(staged_ == has_say, "the agent is not asked where it has a say");
  if (staged_ && say_.committed < number) {
    check(unheeded_, "promoted without a decision of the agent");
    check(!rules_.shares, "I2: other ranks' snapshots depend on this one");
    check(!rules_.coordinated, "I2: other ranks have to hold the same cut");
  }
  line_ = number;
  room_ = 0;
  whole_ = staged_ = false;
}

// As Snapshotter::take().
void World::comes(bool due, bool full, Answer answer) {
  finish();
  if (states_.waits()) look();
  const CutFacts cut = facts(++came_, full);
  known_ = std::max(known_, came_);
  if (full) full_cuts_ |= uint64_t{1} << came_;
  if (full) waited_for_ = cut.number;
  if (states_.is_known(cut.number)) return;
  if (due && is_admitted(cut, answer)) return begin(cut);
  perform(states_.skip(cut, rules_));
  check(states_.waits() || decided_ >= cut.number, "a cut that is left out is not decided");
  check(!rules_.compares || full || passed_ == cut.number, "others wait for what is left out");
  check_answered();
}

bool World::is_admitted(const CutFacts& cut, Answer answer) {
  if (rules_.coordinated && cut.forced && states_.waits()) {
    const uint64_t line = states_.last();
    if (!replaying_) ask(answer, false);
    if (!states_.waits() && states_.last() == line) return false;  // that is the line
  }
  switch (states_.admit(cut, rules_)) {
    case CutStates::Admission::kTake:
      return true;
    case CutStates::Admission::kSkip:
      return false;
    case CutStates::Admission::kAskFirst:
      check(cut.forced, "I8: a decision is asked for, and the client does not wait");
      ask(answer, false);
      return !states_.waits();
    case CutStates::Admission::kPromoteFirst:
      check(cut.forced, "I9: not compared, and the client does not wait");
      unheeded_ = true;
      perform(states_.promote());
      return true;
  }
  return false;
}

void World::begin(const CutFacts& cut) {
  check(room_ == 0 && !is_open(), "the store has room for one cut beside the line");
  states_.begin(cut);
  unfinished_ = true;
  full_ = cut.forced;
  owed_ = true;
  whole_ = staged_ = asked_ = unheeded_ = false;
}

void World::made(bool whole) {
  const uint64_t number = states_.cut().number;
  const bool told = staged_;
  whole_ = whole;
  perform(states_.made(whole, !owed_));
  if (!whole) check(decided_ >= number, "a cancelled cut is not decided");
  if (!whole && told) check(passed_ == number, "others wait for what is cancelled");
  check_answered();
}

void World::finish() {
  if (unfinished_) perform(states_.finish());
  unfinished_ = false;
}

void World::look() {
  if (!owed_ && !replaying_ && !states_.is_aborted(say_)) states_.acknowledge();
  const uint64_t line = line_;
  int looks = 0;
  for (CutActions todo; !(todo = states_.look(say_, replaying_)).empty(); ++looks) {
    check(looks < 3, "it is never done");
    if (!broken_.empty()) return;
    perform(todo);
  }
  check(line == line_ || !replaying_, "promoted by a look in a replay");
}

void World::ask(Answer answer, bool for_room) {
  perform(states_.ask());
  asked_ = true;
  decide(answer);
  perform(states_.answered(say_));
  check(!states_.waits() || !has_decided(), "the agent has answered, and the cut waits");
  if (states_.waits()) perform(states_.unanswered(for_room));
}

// It never takes back what it has said. It says at last that a cut counts on which others depend
// when that is prepared, or it is asked.
void World::decide(Answer answer) {
  if (!may_decide()) return;
  if (answer == Answer::kCommit && may_commit()) say_.committed = room_;
  if (answer == Answer::kAbort) say_.aborted = room_;
}

// The next server is told at its start of what was committed meanwhile.
void World::dies() {
  if (whole_ && staged_ && say_.committed >= room_) line_ = room_;
  decided_ = std::max(decided_, line_);
  released_ = line_ * 10;
  states_ = CutStates(line_);
  room_ = prepared_ = 0;
  whole_ = staged_ = unfinished_ = false;
  came_ = decided_;
  replaying_ = died_ = true;
}

// A client without room is answered, unless the ranks have to agree about just this cut.
void World::check_answered() {
  const bool waits = states_.waits() && states_.cut().number == waited_for_ &&
                     states_.is_compared() && decided_ < waited_for_;
  if (is_open() || waits || came_ < waited_for_) return;
  check(decided_ >= waited_for_, "I8: the client waits for ever");
}

void World::settle(bool commits) {
  replaying_ = false;
  if (stage() == Stage::kMaking) happen({What::kHashed});
  if (stage() == Stage::kCopying) happen({What::kCopied});
  finish();
  const uint64_t waited = states_.waits() ? room_ : 0;
  owed_ = false;
  look();
  decide(commits ? Answer::kCommit : Answer::kAbort);
  look();
  check(!states_.waits(), "I8: a cut waits for ever");
  check(decided_ >= waited && decided_ >= line_, "I8: the client never learns of a cut");
  check(room_ == 0, "the room is never free again");
  check(line_ * 10 == released_, "the journal is not released");
}

std::string World::key() const {
  std::string text;
  for (const uint64_t n : {line_, room_, came_, decided_, released_, prepared_, waited_for_, known_,
                           full_cuts_, say_.committed, say_.aborted, states_.last(),
                           states_.asked(), states_.cut().number, static_cast<uint64_t>(stage())})
    text += std::to_string(n) + ",";
  for (const bool b : {whole_, unfinished_, full_, owed_, staged_, asked_, unheeded_, replaying_,
                       died_, states_.is_compared(), states_.is_shared(), states_.is_acknowledged(),
                       states_.has_snapshotted()})
    text += b ? '1' : '0';
  return text;
}

}  // namespace checkpoint_test
