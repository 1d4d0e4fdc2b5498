// What one rank keeps of its operations while a rank may need it: contributions until all
// has completed an operation, results of identical-output operations likewise. Other ranks ask for
// it after a repair, from the endpoint's threads; the rank's own thread does everything else.
#ifndef FLEXCCL_OPLOG_RETENTION_BUFFER_H_
#define FLEXCCL_OPLOG_RETENTION_BUFFER_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "algo/operation.h"
#include "membership/membership.h"
#include "oplog/operation_log.h"
#include "transport/control.h"

namespace flexccl {

// As the offset of a Verb::kStatus: the answer's `received`, and what the question says of that,
// counts what has its record only, so that the sender may forget it.
inline constexpr std::uint64_t kForGood = 1;

struct Counters {
  std::uint64_t entered = 0, done = 0, all_done = 0, operations = 0, kept_bytes = 0;
  std::uint64_t owed = 0;  // the first operation of which only this process has what others lack
};

// What a predecessor's records have of an operation that others may not have completed.
struct Inherited {
  std::uint64_t sequence = 0;
  Operation operation = {};
  Ring ring = {};
  std::span<const std::byte> output = {};
};

class RetentionBuffer final : public Responder {
 public:
  // A new rank has completed the first `position` collectives, and keeps nothing of them.
  RetentionBuffer(std::shared_ptr<const Membership> self, std::uint64_t position);
  Answer answer(const Question& question, std::shared_ptr<const void>* owner,
                std::span<const std::byte>* payload) override;

  std::uint64_t next_sequence() const;
  // Only count: nothing is kept.
  void begin(std::uint64_t sequence);
  void complete(std::uint64_t sequence);
  // Begins an operation, and returns where it finds its input in every attempt.
  Buffers keep(std::uint64_t sequence, const Operation& operation, Ring ring);
  // `recorded`: a replacement of this rank has the output as well.
  void complete(std::uint64_t sequence, const Operation& operation, Ring ring, bool recorded);
  // All ranks have completed these.
  void release(std::uint64_t all_done);
  // What a rank had completed when it asked last, in this epoch; 0: it has not asked.
  std::uint64_t heard(int slot, std::uint32_t epoch) const;
  // What a rank gets to know of this one: collectives that are complete, messages of it that are
  // recorded here.
  struct MembershipUpdate {
    std::uint64_t done = 0, received = 0;
  };
  MembershipUpdate membership_for(int slot) const;
  void has_told(int slot, std::uint32_t epoch, MembershipUpdate news);
  bool must_tell(int slot) const;
  // A batch of sends and receives is complete, and recorded.
  void count_batch();
  // A communicator was made from this one, without a message. Returns which one it is, from 1.
  std::uint64_t count_child();

  // Messages are numbered per pair of ranks and direction, from 1.
  std::uint64_t keep_message(int to, const std::byte* from, std::size_t bytes);
  std::uint64_t count_message(int to);
  void release_messages(int to, std::uint64_t received);
  std::uint64_t sent_at_fence(int to) const;
  std::uint64_t received(int from) const;
  void receive(int from);
  // For a new rank that goes on where its predecessor stopped.
  bool knows_pair(int slot) const;
  void set_pair(int slot, std::uint64_t sent, std::uint64_t received);
  // Goes back to `now`; the predecessor had come to `end`, and told others so. All have
  // completed what comes before `open`, and gets `kept` here.
  void restart(const LogPosition& now, const LogPosition& end, std::uint64_t open,
               const std::vector<Inherited>& kept);
  LogPosition position_now() const;

  // Takes an epoch: what was begun before it is told apart from what comes. In the slots `changed`
  // there are other ranks now.
  void fence(std::shared_ptr<const Membership> self, std::span<const int> changed);
  Counters counters() const;
  // Slots that have not received everything yet.
  std::vector<int> debtors() const;

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    std::size_t capacity = 0, bytes = 0;
    std::atomic<int> readers = 0;  // of other ranks, now
  };
  // Counts a reader for as long as it lives.
  struct Reader {
    explicit Reader(std::shared_ptr<Buffer> of) : buffer(std::move(of)) { ++buffer->readers; }
    ~Reader() { buffer->readers.fetch_sub(1, std::memory_order_release); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    const std::shared_ptr<Buffer> buffer;
  };
  struct Kept {
    Operation operation;
    int ranks = 0;
    std::shared_ptr<Buffer> input, output;
    std::uint64_t number = 0;  // as an operation; 0: not complete
    bool recorded = false;     // the output
  };
  struct Message {
    std::shared_ptr<Buffer> buffer;
    std::uint64_t number = 0;  // of its operation
  };
  struct Pair {
    std::uint64_t sent = 0, sent_at_fence = 0, received = 0;
    std::uint64_t sent_before = 0;        // when the rank that is there now took the slot
    std::uint64_t received_for_good = 0;  // recorded: a replacement of this rank has them as well
    std::map<std::uint64_t, Message> messages;
  };
  // Preconditions of these: mutex_ is held.
  MembershipUpdate news(int slot) const;
  void forget_messages(int to, std::uint64_t received);
  std::shared_ptr<Buffer> fill(std::shared_ptr<Buffer> reuse, const std::byte* from,
                               std::size_t bytes);
  void drop(std::shared_ptr<Buffer> buffer);
  Availability find(const Question& question, std::shared_ptr<Buffer>* found);
  std::uint64_t owed() const;

  const bool joined_;  // as a new rank
  mutable std::mutex mutex_;
  std::shared_ptr<const Membership> self_;
  Counters counters_;
  std::uint64_t children_ = 0;
  std::uint64_t done_at_fence_, serves_after_, claimed_ = 0;  // `claimed_` by a predecessor
  std::map<std::uint64_t, Kept> kept_;
  std::map<int, Pair> pairs_;
  struct Heard {
    std::uint32_t epoch;
    std::uint64_t done;
  };
  std::map<int, Heard> heard_;  // from those that asked, by slot
  struct Told {
    std::uint32_t epoch;
    MembershipUpdate news;
  };
  std::map<int, Told> told_;  // those that were asked
  std::vector<std::shared_ptr<Buffer>> spare_;
};

}  // namespace flexccl

#endif  // FLEXCCL_OPLOG_RETENTION_BUFFER_H_
