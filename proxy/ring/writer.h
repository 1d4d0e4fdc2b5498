// The client's end of the ring: appends entries in one total order over the threads of a process.
//
// Threads: any. begin() takes the writer's mutex and the Entry holds it until publish() or its
// destructor, so: fill the entry, publish, and do nothing else in between (no second begin, no
// wait). A crash at any instant leaves the ring readable up to the last published entry, because
// `appended` moves last and `oldest` moves before anything is written over.
//
// Space is free again when it is committed (a cut passed it) and consumed (the server passed it).
// With Protect::kSnapshot a cut commits when the server has snapshotted it, which is seen at the
// next cut or when space is missing; with kNone at once. When half of the ring or of the arena
// holds uncommitted entries, or when the server asks for it because what it keeps from one snapshot
// to the next fills its room, a cut is made here, wherever the program is: a forced cut. When space
// is missing the writer waits for the server's decision about that cut; if it could not be
// snapshotted the space is freed all the same, and the job goes on unprotected until the next cut.
#ifndef PYFT_RING_WRITER_H_
#define PYFT_RING_WRITER_H_

#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

#include "ring/channel.h"
#include "ring/object_log.h"
#include "ring/wait.h"

namespace pyft::ring {

class Writer;

// A reserved, not yet visible entry. Movable; abandoning it (destructor) leaves no trace.
class Entry {
 public:
  Entry() = default;
  Entry(Entry&&) = default;
  Entry& operator=(Entry&&) = default;

  bool ok() const { return status_ == WaitStatus::kOk; }
  WaitStatus status() const { return status_; }
  EntryHeader& header() const { return *header_; }
  std::span<std::byte> body() const { return body_; }        // 16-byte aligned, zeroed tail only
  std::span<std::byte> payload() const { return payload_; }  // 64-byte aligned in the arena
  void set_reply_slot(uint32_t slot) const { header_->reply_slot = slot; }
  // Sequence number this entry will get.
  uint64_t seq() const { return header_->seq; }

 private:
  friend class Writer;
  std::unique_lock<std::mutex> lock_;
  WaitStatus status_ = WaitStatus::kForked;
  EntryHeader* header_ = nullptr;
  std::span<std::byte> body_, payload_;
  uint64_t end_ = 0;
};

struct Appended {
  WaitStatus status = WaitStatus::kOk;
  uint64_t seq = 0;
  explicit operator bool() const { return status == WaitStatus::kOk; }
};

class Writer {
 public:
  // The channel and liveness must outlive the writer; one writer per channel.
  Writer(Channel& channel, const Liveness& liveness);

  // Largest body and payload one entry may have; longer transfers are split by the caller.
  uint64_t max_body_bytes() const { return channel_.ring_bytes() / 4; }
  uint64_t max_payload_bytes() const { return channel_.arena_bytes() / 4; }

  Entry begin(uint16_t call, uint32_t body_bytes, uint16_t flags = 0, uint64_t payload_bytes = 0);
  // Makes the entry visible to the server and returns its sequence number.
  uint64_t publish(Entry entry);

  // Whole entries: a trivially copyable command, an optional variable tail, an optional payload.
  template <class Cmd>
  Appended append(uint16_t call, const Cmd& cmd, uint16_t flags = 0,
                  std::span<const std::byte> tail = {}, std::span<const std::byte> payload = {},
                  uint32_t reply_slot = kNoSlot) {
    static_assert(std::is_trivially_copyable_v<Cmd>);
    Entry entry =
        begin(call, static_cast<uint32_t>(sizeof cmd + tail.size()), flags, payload.size());
    if (!entry.ok()) return {entry.status(), 0};
    std::memcpy(entry.body().data(), &cmd, sizeof cmd);
    if (!tail.empty()) std::memcpy(entry.body().data() + sizeof cmd, tail.data(), tail.size());
    if (!payload.empty()) std::memcpy(entry.payload().data(), payload.data(), payload.size());
    entry.set_reply_slot(reply_slot);
    return {WaitStatus::kOk, publish(std::move(entry))};
  }

  // From now on no replay brings back the device's memory: see LogHeader. False: known already.
  bool unreplayable();

  // Marks.
  Appended alloc_mark(uint64_t address, uint64_t requested_bytes);
  Appended free_mark(uint64_t address, uint64_t requested_bytes);
  Appended observed(uint32_t word, uint32_t kind, uint64_t value);
  Appended fence(uint64_t stream, uint32_t word, uint64_t value);
  Appended gate();
  // The last entry: what another thread, or a destructor at the end of the process, appends after
  // it is refused with kEnding, since the server has left.
  Appended goodbye();
  // Appends kCut; never waits for the server. `scope`: bytes of a CutScope, or none. With
  // `expected_seq` it counts only when nothing but kObserved has this number or a higher one: what
  // was found out before may be overtaken by another thread. If it is, nothing is appended and the
  // result has seq 0, so that it can be found out again; after kCutTries times, in a program whose
  // other threads never rest, the cut is appended and passed over.
  static constexpr int kCutTries = 4;
  Appended cut(std::span<const std::byte> scope = {}, uint64_t expected_seq = 0);
  uint64_t next_seq();
  // Whether the next cut may be snapshotted, by the number of cuts that the server leaves out
  // between two of them. If not, the next cut says so, and nothing needs to know what is live
  // there.
  bool next_cut_counts();
  // Behind the cut of a step: whether the agent wants the program to stand still there (hold.h).
  bool begin_hold();
  // Whether cuts commit only when they have been snapshotted.
  bool takes_snapshots() const;

  // A confirmed creation failed on the server: it must not be re-created by a later one. Before the
  // slot of its answer is given to another call.
  void forget_creation(uint64_t seq);

  // Waits until the server has dispatched (not necessarily finished) the entry.
  WaitStatus wait_consumed_all();
  void count_local_calls(uint64_t calls);

  Channel& channel() const { return channel_; }
  const Liveness& liveness() const { return liveness_; }
  const ObjectLog& object_log() const { return object_log_; }

 private:
  struct CommitPoint {
    uint64_t ring, arena;
    uint64_t cut;  // number
  };
  struct Fold {
    uint64_t position, seq;
  };
  template <class Body>
  Appended mark(Mark kind, const Body& body);
  WaitStatus reserve_ring(uint64_t bytes, uint64_t* begin, uint64_t* end);
  uint64_t arena_place(uint64_t bytes) const;
  WaitStatus make_arena_room(uint64_t bytes);
  uint64_t take_arena(uint64_t bytes);
  void fill_cut(std::byte* body, uint8_t forced);
  uint16_t scope_us() const;
  void open_cut(uint64_t ring_position);
  void commit_snapshots();
  void cut_when_needed();
  void append_forced_cut(uint8_t forced);
  template <class Fits>
  WaitStatus free_space(Fits&& fits);
  WaitStatus wait_decided(uint64_t cut);
  WaitStatus wait_consumed(uint64_t position);
  void commit(const CommitPoint& point);
  void pad(uint64_t bytes);
  void fold_pending(uint64_t before);
  void pass_commit_points();
  uint64_t ring_free_limit() const;
  void forget_capture(size_t before);
  EntryHeader& header_at(uint64_t position) const;
  void retire_oldest(uint64_t new_end);

  Channel& channel_;
  const Liveness& liveness_;
  std::mutex mutex_;
  ObjectLog object_log_;
  // Below: guarded by mutex_. Private copies of what only this writer changes in LogHeader.
  uint64_t appended_ = 0, arena_head_ = 0, next_seq_ = 1, oldest_ = 0;
  uint64_t arena_free_before_ = 0;
  uint64_t cuts_ = 0;                                // appended
  uint32_t steps_ = 0;                               // of these, not forced
  uint64_t last_step_cut_ = 0;                       // the number of the last one of those
  uint64_t last_effect_ = 0;                         // the last entry that is no kObserved
  int overtaken_ = 0;                                // so often, since the last cut
  bool ended_ = false;                               // by goodbye()
  bool passes_over_ = false;                         // the next cut, as the client takes it
  uint32_t cuts_wanted_ = 0;                         // as the server last had it
  uint64_t scope_began_ns_ = 0;                      // 0: nothing finds out what is live
  uint64_t last_cut_ring_ = 0, last_cut_arena_ = 0;  // where the last one was made
  std::deque<CommitPoint> open_;                     // cuts that are not committed
  std::deque<CommitPoint> commits_;                  // committed, payloads not yet known to be free
  std::vector<Fold> folds_;
};

uint32_t thread_index();  // 0, 1, 2 … in order of first use

}  // namespace pyft::ring

#endif  // PYFT_RING_WRITER_H_
