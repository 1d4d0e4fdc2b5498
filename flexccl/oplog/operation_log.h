// What a replay of this rank needs, in memory of the embedder that outlives this process: for every
// operation what came out of it here (region.h has the format). It is whole at any instant: a
// record is there from the one store on that moves the tail past it; a commit is there from the one
// store on that makes the other of two bases current.
#ifndef FLEXCCL_OPLOG_OPERATION_LOG_H_
#define FLEXCCL_OPLOG_OPERATION_LOG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "algo/schedule.h"
#include "oplog/content_store.h"
#include "oplog/region.h"

namespace flexccl {

// Whose records these are.
struct RecordOwner {
  std::uint64_t comm = 0, parent = 0;
  std::uint32_t slot = 0, slots = 0, epoch = 0;
  std::vector<int> members = {};  // the live slots
  Bytes16 process = {};
  Key key = {};
};

// Messages exchanged with another rank so far.
struct PairCounters {
  std::uint64_t sent = 0, received = 0;
};

// Where a rank stands after some operation.
struct LogPosition {
  std::uint64_t operation = 0, sequence = 0, children = 0;
  std::map<int, PairCounters> pairs = {};
};

struct RecordUsage {
  std::uint64_t used = 0, budget = 0, committed = 0, diverged = 0;
  bool recorded = false, replaying = false;
};

// One operation, complete but not yet told to any rank. `outputs` lie one after the other.
struct OperationResult {
  OpDescriptor op = {};
  Ring ring = {};
  Hash input = {};
  std::span<const std::span<const std::byte>> outputs = {};
  bool identical = false;                    // the other ranks of the host have the same
  std::map<int, PairCounters> changed = {};  // by a batch of messages
};

class OperationLog {
 public:
  using Report = std::function<void(std::uint64_t comm, std::uint64_t operation, const char*)>;

  // Starts in empty memory. All throw ncclInvalidArgument when the memory does not fit.
  void begin(std::span<std::byte> memory, const RecordOwner& owner, const LogPosition& now);
  // Goes on in the memory of a predecessor, and replays what it recorded after `operation`.
  // Returns where the replay stands, and where its records end. Empty memory: from the start.
  std::pair<LogPosition, LogPosition> adopt(std::span<std::byte> memory, const RecordOwner& owner,
                                            std::uint64_t operation);
  // After adopt(): the collectives before the replay that some rank may not have completed, with
  // what was recorded as their output. Returns the number of the first of them, or of the next one.
  using VisitOpen = std::function<void(const Record& record, std::span<const std::byte> output)>;
  std::uint64_t each_open(const VisitOpen& visit) const;
  // Whose they are, without looking at the records.
  static RecordOwner owner_of(std::span<std::byte> memory);
  // Empties a region that is not in use.
  static void forget(std::span<std::byte> memory);
  static void set_report(Report report);

  // An operation begins.
  void enter(std::uint64_t operation, std::uint64_t sequence, std::uint32_t epoch,
             std::span<const int> members);
  // `before`: where the rank stood, with all pairs. False: it found no room.
  bool append(const LogPosition& before, const OperationResult& outcome);
  void commit(std::uint64_t operation);
  void set_parent(std::uint64_t comm);
  // The communicator was destroyed. Afterwards the memory is not touched any more.
  void close();

  bool replaying() const { return replaying_.load(std::memory_order_acquire); }
  bool active() const { return active_.load(std::memory_order_acquire); }
  bool lies_at(const void* memory) const;
  // The ring in which the next operation of the replay ran.
  Ring next_ring();
  // Copies the outputs of the next operation. Throws ncclInvalidUsage when it is another one now;
  // other inputs are counted and reported.
  void replay(const OperationResult& now, std::span<const std::span<std::byte>> outputs);
  RecordUsage usage() const;

 private:
  // Preconditions of all these: mutex_ is held.
  RegionBase* base(std::uint64_t which) const;
  RegionBase* current() const;
  LogPosition position_now(RegionBase* of) const;
  const Record* at(std::uint64_t offset) const;
  std::byte* place(std::uint64_t offset) const;
  std::uint64_t tail() const;
  void lay_out(std::span<std::byte> memory, std::uint32_t slots);
  void start(std::span<std::byte> memory, const RecordOwner& owner, const LogPosition& now);
  void leave();
  void check_owner(std::span<std::byte> memory, const RecordOwner& owner);
  std::uint64_t advance(std::uint64_t from, std::uint64_t operation, RegionBase* to) const;
  void check_complete();
  using Visit = std::function<void(std::uint64_t place, const ContentKey& key)>;
  void each_content(std::uint64_t from, std::uint64_t until, const Visit& visit) const;
  void step_to(std::uint64_t offset);
  std::span<const std::byte> output_of(const Record& record) const;
  void note_divergence(const Record& record, const Hash& input);
  // records_append.cc
  std::uint64_t fill(std::uint64_t end);
  bool put(Record record, const std::map<int, PairCounters>& pairs,
           std::span<const std::span<const std::byte>> outputs);
  bool put_operation(const LogPosition& before, const OperationResult& outcome);
  bool end_gap(const LogPosition& here);
  void give_up(std::uint64_t operation);
  void commit_now();

  mutable std::mutex mutex_;
  std::atomic<bool> active_ = false, replaying_ = false;
  RegionHeader* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t cursor_ = 0;          // of the replay: the next record
  std::uint64_t last_operation_ = 0;  // that is complete
  std::uint64_t wanted_ = 0;          // the last commit
  std::uint64_t resumed_ = 0;         // after this operation, after the last gap
  std::uint64_t gaps_ = 0;            // so far, of this process
  bool may_resume_ = false;           // something was committed since the gap began
  LogPosition stands_ = {};           // in a gap: where the rank is
};

}  // namespace flexccl

#endif  // FLEXCCL_OPLOG_OPERATION_LOG_H_
