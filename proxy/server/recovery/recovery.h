// What a server does because it may have to be replaced, or has replaced one. docs/recovery.md.
//
// A server that replaces another dispatches the entries after the last captured cut again. Up to
// the position the old one had reached it *replays*: nothing is answered, published or written to
// the client a second time; from there on it serves.
#ifndef PYFT_SERVER_RECOVERY_RECOVERY_H_
#define PYFT_SERVER_RECOVERY_RECOVERY_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/recovery/divergence.h"
#include "server/recovery/journal.h"

namespace pyft::server {

// Exit code of a new server that the others have not let into a communicator: they have changed
// meanwhile, or another one has died, so the next attempt may go better.
inline constexpr int kNoPlaceExit = 79;

// Whether a CUDA error code means that the context or the device is lost. Everything else is an
// answer to a call (out of memory, invalid value…).
bool is_device_fault(int code);

// What handlers tell of communicators, and ask when objects are made again.
class CommunicatorKeeper {
 public:
  virtual ~CommunicatorKeeper() = default;
  // Whether a rank of a communicator can be replaced at all: not with stock NCCL.
  virtual bool can_replace() const = 0;
  // Takes the places of the server before. Empty, or what is in the way.
  virtual std::string rejoin() = 0;
  // The communicator that entry `seq` made as `handle`, for entries that are not repeated.
  virtual void* made_before(uint64_t handle, uint64_t seq) = 0;
  virtual void made(void* comm, uint64_t handle, uint64_t seq, int rank, int size) = 0;
  virtual void ended(uint64_t handle, uint64_t seq) = 0;
  // It has failed for good; said again and again.
  virtual void failed(void*) {}
  // A unique id was made here.
  virtual void minted(std::span<const std::byte>) {}
  // Where the ranks make their communicators anew, all together, when one has died (the others
  // return what they are given): the unique id under which this rank makes it; what is made from
  // another one, the same at all ranks (`how`); what is about to be put into a stream; and the
  // failure of a call that waits for other ranks.
  virtual std::vector<std::byte> id_for(uint64_t, int, std::span<const std::byte> id) {
    return {id.begin(), id.end()};
  }
  virtual void divides(uint64_t, uint64_t, uint64_t) {}
  // The settings (NcclSettings) with which it is about to be made; none: those of `parent`.
  virtual void configures(uint64_t, uint64_t, std::span<const std::byte>) {}
  virtual void collective(uint64_t) {}
  virtual void message(uint64_t, int, bool) {}
  virtual void lost_peer(int, const std::string&) {}
  // What is not there at the recovery point was ended before it.
  virtual bool makes_all_again() const { return false; }
  // Before a communicator is destroyed: waits until no other rank needs what is kept here for it,
  // such as one that is being replaced, but not for ever.
  virtual void let_go(uint64_t handle) = 0;
};

class Recovery {
 public:
  explicit Recovery(ring::Channel& channel);

  // Whether faults of the device are repaired behind the client's back.
  bool repairs() const;
  // Whether a server before this one has worked for this client.
  bool replaces() const { return until_ > 0; }
  ring::ReplayMode mode() const;
  Journal& journal() { return journal_; }
  // Set by whoever has them; nullptr otherwise.
  CommunicatorKeeper* communicators = nullptr;
  // Objects of before the recovery point are being made: their calls are not repeated in full.
  bool restores_objects() const;

  // Ring position up to which an earlier server has dispatched.
  uint64_t until() const { return until_; }
  bool replaying() const { return replaying_.load(std::memory_order_relaxed); }
  void set_replaying(bool replaying) { replaying_ = replaying; }
  void enter(ring::Phase phase);
  // The entry that is being dispatched.
  uint64_t dispatching() const { return channel_.control().dispatching_seq.load(); }

  // Ends this process after writing down why, so that the agent can do something about it; the
  // client has seen nothing. `seq`: the entry, 0 for the one being dispatched. Any thread.
  [[noreturn]] void fail(ring::FaultKind kind, int code, const std::string& text, uint64_t seq = 0);

  [[noreturn]] void no_place(const std::string& text);  // likewise, with kNoPlaceExit

  // A value handed out earlier has been computed again and is equal, or not. One that is not ends
  // the process, so that the next one replays entry by entry; what becomes of one that is not equal
  // there either is up to the policy. Where that is to report, last digits end nothing: no replay
  // of kernels that round differently each time would ever give them back. Other numbers end a
  // replay when all of them have been computed, so that the next replay tells who is right: if it
  // agrees with this one, what the program was told was wrong. Any thread.
  void agreed();
  void differed(const Difference& difference);
  // The socket by which the agent is told why this process ends; it stays the caller's.
  void set_agent(int fd) { agent_ = fd; }
  // At the end of a replay, and before what it has computed becomes a recovery point: ends the
  // process if there are numbers of which another replay has to tell.
  void settle();
  void set_policy(DivergencePolicy policy) { policy_ = policy; }
  // How calls are called in sentences.
  void set_call_names(const char* (*name)(uint16_t call)) { call_name_ = name; }

  // Comparisons that a stream will come to.
  void comparison_begins() { comparing_.fetch_add(1); }
  void comparison_ends() { comparing_.fetch_sub(1); }
  bool comparing() const { return comparing_.load() != 0; }

  // Something of this rank is about to go to other ranks.
  void hold_back() {
    if (hold_back_) hold_back_();
  }
  void set_hold_back(std::function<void()> hold_back) { hold_back_ = std::move(hold_back); }

  // The program wants more of the device's memory than there is: what captures have of it is given
  // back. False: nothing is.
  bool make_room() { return make_room_ && make_room_(); }
  void set_make_room(std::function<bool()> make_room) { make_room_ = std::move(make_room); }

  // Completion words in a replay: published again, in the same order as the first time. An
  // OBSERVED mark holds when what was sent for its word up to there has been reached again.
  void word_sent(uint32_t word, uint64_t value);
  void word_reached(uint32_t word, uint64_t value);
  bool word_holds(uint32_t word, uint64_t value);

 private:
  void leave_word(ring::FaultKind kind, int code, const std::string& text, uint64_t seq);
  enum class Outcome { kExpected, kGoesOn, kCorrected, kAsksAgain, kEnds };
  Outcome outcome_of(const Difference& difference) const;
  ring::FaultKind kind_of(const Difference& difference) const;
  void say(const Difference& difference, const char* what_follows);
  void note_corrected(const Difference& difference);
  std::string sentence(const Difference& difference) const;

  struct Word {
    uint64_t sent = 0, reached = 0;
  };
  ring::Channel& channel_;
  Journal journal_;
  uint64_t until_;
  int agent_ = -1;
  std::atomic<bool> replaying_{false}, said_{false};
  std::mutex doubts_mutex_;
  std::optional<Difference> doubt_;  // the first of which another replay has to tell
  std::atomic<uint64_t> comparing_{0};
  std::function<void()> hold_back_;
  std::function<bool()> make_room_;
  DivergencePolicy policy_ = DivergencePolicy::kStrict;
  const char* (*call_name_)(uint16_t call) = nullptr;
  std::mutex mutex_;
  std::unordered_map<uint32_t, Word> words_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_RECOVERY_H_
