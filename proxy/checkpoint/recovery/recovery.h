// What a server does because it may have to be replaced, or has replaced one.
//
// A recovery goes through these stages, in this order; recovery.cc has them one below the other.
//
// * starting: the log of the server before is taken over (store/store.h, replay/journal.h).
// * communicators: this rank gets its places among others back (resources/communicators.h).
// * objects: streams, modules, graphs and so on are made again (resources/objects.h).
// * restore: memory gets its contents (resources/device_memory.h).
// * replay: entries after the snapshot are executed again (the caller; replay/divergence.h).
// * live: it serves.
//
// Up to the position that the old server had reached nothing is answered, published or written to
// the client a second time; from there on the new one serves. A stage that fails ends the process,
// and the agent starts the next one: nothing in store and log has been changed.
#ifndef PYFT_CHECKPOINT_RECOVERY_RECOVERY_H_
#define PYFT_CHECKPOINT_RECOVERY_RECOVERY_H_

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/device.h"
#include "checkpoint/ranks.h"
#include "checkpoint/recovery/word_progress.h"
#include "checkpoint/replay/divergence.h"
#include "checkpoint/replay/journal.h"
#include "checkpoint/resources/communicators.h"

namespace pyft::checkpoint {

class ObjectMaker;
class Store;

// Whether a CUDA error code means that the context or the device is lost. Everything else is an
// answer to a call (out of memory, invalid value…).
bool is_device_fault(int code);

// What handlers want of snapshots.
class Snapshots {
 public:
  virtual ~Snapshots() = default;
  // Something of this rank is about to go to other ranks.
  virtual void commit_output() = 0;
  // The program wants more of the device's memory than there is: what snapshots have of it is given
  // back. False: nothing is.
  virtual bool make_room() = 0;
};

// What is told of all that differs in an audit, where nothing is done about it. Any thread.
class Differences {
 public:
  virtual ~Differences() = default;
  virtual void differs(const Difference& difference) = 0;
  // It differs from what was told before a silent fault was corrected, and what the rank gives
  // since is not known.
  virtual void cannot_tell(const Difference& difference) = 0;
};

class Recovery {
 public:
  // What the stages work on. All of it outlives the call.
  struct Parts {
    const Store& store;
    DeviceMemory& memory;
    DeviceState& state;
    Placement& placement;
    ObjectMaker& maker;
    RemoteBlocks& remote;
  };

  explicit Recovery(ring::Channel& channel);

  // The stages up to replay, where faults are repaired: if an earlier server has worked for the
  // client, the device gets the state of the committed snapshot. Returns the position in the ring
  // from which entries have to be executed. Ends the process (FaultKind::kUnrecoverable) when
  // something is missing or does not have the digest it must have.
  uint64_t restore(const Parts& parts);
  // The replay begins at this position; where there is nothing to replay, it is live at once.
  void begin_replay(uint64_t position);
  // An entry has been executed again. True: it was the last one.
  bool replayed(uint64_t position);
  // All that was to be compared has been. Ends the process if something of it has to be computed
  // once more.
  void go_live(uint64_t position);

  // Whether faults of the device are repaired behind the client's back.
  bool repairs() const;
  // Whether a server before this one has worked for this client.
  bool replaces() const { return until_ > 0; }
  ring::ReplayMode mode() const;
  Journal& journal() { return journal_; }
  // Set by the process that has them; nullptr otherwise.
  CommunicatorRecovery* communicators = nullptr;
  // Objects of before the committed snapshot are being made: their calls are not repeated in full.
  bool restores_objects() const;

  // Ring position up to which an earlier server has dispatched.
  uint64_t until() const { return until_; }
  // The entry of the cut from which the device was restored, or 0.
  uint64_t restored_seq() const { return restored_seq_; }
  bool replaying() const { return replaying_.load(std::memory_order_relaxed); }
  void set_replaying(bool replaying) { replaying_ = replaying; }
  void enter(ring::Phase phase);
  // The entry that is being dispatched.
  uint64_t dispatching() const { return channel_.control().dispatching_seq.load(); }

  // Ends this process after writing down why, so that the agent can do something about it; the
  // client has seen nothing. `seq`: the entry, 0 for the one being dispatched. Any thread.
  [[noreturn]] void fail(ring::FaultKind kind, int code, const std::string& text, uint64_t seq = 0);

  [[noreturn]] void no_place(const std::string& text);  // likewise, with ring::kNoPlaceExit
  // Likewise if this code says that the device has failed and that is repaired. `what` has returned
  // it: the name of a call, or words.
  void check_device(int code, const char* what);

  // A value handed out earlier has been computed again and is equal, or not. One that is not ends
  // the process, so that the next one replays entry by entry; what becomes of one that is not equal
  // there either is up to the policy. Where that is to report, last digits end nothing: no replay
  // of kernels that round differently each time would ever give them back. Other numbers end a
  // replay when all of them have been computed, so that the next replay tells which is right: if it
  // agrees with this one, what the program was told was wrong. Any thread.
  void agreed();
  void differed(const Difference& difference);
  // What the program was told by entries from `first` to `last` may have been wrong, since a silent
  // fault was found later: numbers that differ there are what is expected of a replay. Any thread.
  void told_wrong(uint64_t first, uint64_t last);
  // How the agent is told of this process; nullptr: it is not.
  void set_reports(RecoveryReports* reports) { reports_ = reports; }
  // At the end of a replay, and before what it has computed becomes a committed snapshot: ends the
  // process if there are numbers of which another replay has to tell.
  void settle();
  // This replay is an audit: a value that differs ends nothing.
  void audit(Differences* differences) { differences_ = differences; }
  bool audits() const { return differences_ != nullptr; }
  void set_policy(DivergencePolicy policy) { policy_ = policy; }
  // How calls are called in sentences.
  void set_call_names(const char* (*name)(uint16_t call)) { call_name_ = name; }

  // Comparisons that a stream will come to.
  void comparison_begins() { comparing_.fetch_add(1); }
  void comparison_ends() { comparing_.fetch_sub(1); }
  bool comparing() const { return comparing_.load() != 0; }

  // nullptr: none are taken.
  void set_snapshots(Snapshots* snapshots) { snapshots_ = snapshots; }
  void commit_output() {
    if (snapshots_) snapshots_->commit_output();
  }
  bool make_room() { return snapshots_ && snapshots_->make_room(); }

  WordProgress& words() { return words_; }

 private:
  void require(const std::string& problem, DeviceState& state);
  void leave_word(ring::FaultKind kind, int code, const std::string& text, uint64_t seq);
  enum class Outcome { kExpected, kGoesOn, kCorrected, kAsksAgain, kEnds };
  Outcome outcome_of(const Difference& difference) const;
  bool was_told_wrong(uint64_t seq) const;
  ring::FaultKind kind_of(const Difference& difference) const;
  void say(const Difference& difference, const char* what_follows);
  void note_corrected(const Difference& difference);
  std::string sentence(const Difference& difference) const;

  ring::Channel& channel_;
  Journal journal_;
  uint64_t until_, restored_seq_ = 0;
  RecoveryReports* reports_ = nullptr;
  Snapshots* snapshots_ = nullptr;
  Differences* differences_ = nullptr;
  std::atomic<bool> replaying_{false}, said_{false};
  std::mutex end_mutex_, doubts_mutex_;
  mutable std::mutex told_mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> told_wrong_;  // entries
  std::optional<Difference> doubt_;  // the first of which another replay has to tell
  std::atomic<uint64_t> comparing_{0};
  DivergencePolicy policy_ = DivergencePolicy::kStrict;
  const char* (*call_name_)(uint16_t call) = nullptr;
  WordProgress words_;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RECOVERY_RECOVERY_H_
