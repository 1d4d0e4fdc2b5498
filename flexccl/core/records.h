// What a replay of this rank needs, in memory of the embedder that outlives this process: for every
// operation what came out of it here. The format is position independent and whole at any instant:
// a record is there from the one store on that moves the tail past it; a commit is there from the
// one store on that makes the other of two base tables current.
#ifndef FLEXCCL_CORE_RECORDS_H_
#define FLEXCCL_CORE_RECORDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "algo/frame.h"

namespace flexccl {

struct RecordOwner {
  std::uint64_t comm = 0;
  std::uint32_t slot = 0, slots = 0;
};

// Messages exchanged with another rank so far.
struct PairCounters {
  std::uint64_t sent = 0, received = 0;
};

// Where a rank stands after some operation.
struct Standpoint {
  std::uint64_t operation = 0, sequence = 0;
  std::map<int, PairCounters> pairs = {};
};

struct RecordUsage {
  std::uint64_t used = 0, budget = 0, committed = 0;
  bool recorded = false;
};

class Records {
 public:
  // Starts in empty memory. All throw ncclInvalidArgument when the memory does not fit.
  void begin(std::span<std::byte> memory, const RecordOwner& owner, const Standpoint& now);
  // Goes on in the memory of a predecessor, and replays what it recorded after `operation`.
  // Returns where the replay stands, and where its records end.
  std::pair<Standpoint, Standpoint> adopt(std::span<std::byte> memory, const RecordOwner& owner,
                                          std::uint64_t operation);

  // One operation, complete but not yet told to anybody: `outputs` one after the other.
  void append(const Standpoint& before, const OpDescriptor& op,
              std::span<const std::span<const std::byte>> outputs);
  // With `after`, the pairs that a batch has changed.
  void append_batch(const Standpoint& before, const std::map<int, PairCounters>& after,
                    std::span<const std::span<const std::byte>> outputs);
  void commit(std::uint64_t operation);

  bool replaying() const;
  // Copies the outputs of the next operation. Throws ncclInvalidUsage when it is another one now.
  void replay(const OpDescriptor& op, std::span<const std::span<std::byte>> outputs);
  RecordUsage usage() const;
  bool active() const;

 private:
  struct Header;
  struct Base;
  struct Record;
  struct Pair;
  // Preconditions of all these: mutex_ is held.
  Base* base(std::uint32_t which) const;
  Pair* pairs(Base* of) const;
  Standpoint standpoint(Base* of) const;
  const Record* at(std::uint64_t offset) const;
  std::byte* place(std::uint64_t offset) const;
  bool put(const Standpoint& before, const OpDescriptor& op,
           const std::map<int, PairCounters>& after,
           std::span<const std::span<const std::byte>> outputs);
  std::uint64_t advance(std::uint64_t from, std::uint64_t operation, Base* to) const;
  void give_up(std::uint64_t operation);
  void check_layout(std::span<std::byte> memory, const RecordOwner& owner);

  mutable std::mutex mutex_;
  Header* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t cursor_ = 0;          // of the replay: the next record
  std::uint64_t last_operation_ = 0;  // that was to be recorded
};

}  // namespace flexccl

#endif  // FLEXCCL_CORE_RECORDS_H_
