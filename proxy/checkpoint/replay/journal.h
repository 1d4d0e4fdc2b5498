// What the device read from client memory and what it wrote there, entry by entry, in the store: a
// replay must read the same bytes again, and must not write a second time (A3 and A15).
//
// Records are made by the dispatch thread, in the order of the entries, and filled by whichever
// thread runs the device's work. They count until a snapshot passes their entry.
#ifndef PYFT_CHECKPOINT_REPLAY_JOURNAL_H_
#define PYFT_CHECKPOINT_REPLAY_JOURNAL_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ring/channel.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

class Journal {
 public:
  using Key = std::pair<uint64_t, uint64_t>;  // entry; index and kind
  // A channel without a store has no journal: find() and add() give nullptr.
  explicit Journal(ring::Channel& channel);

  // Reads what an earlier server has left. A sentence when it is damaged.
  std::string adopt();

  // The record an earlier server made for this entry, nullptr if there is none.
  ring::JournalRecord* find(uint64_t seq, uint64_t index, ring::JournalKind kind) const;
  // A new record with room for `data_bytes`; nullptr when there is no room, which is noted.
  ring::JournalRecord* add(uint64_t seq, uint64_t index, ring::JournalKind kind, uint64_t bytes,
                           uint64_t data_bytes);
  static std::byte* data(ring::JournalRecord* record);
  // A record for what a collective leaves here, which only an audit needs: nullptr when half of the
  // journal is in use, and nothing is lost by that.
  ring::JournalRecord* keep(uint64_t seq, uint64_t bytes);
  // A record for a result, with room for samples unless the journal has too little for them.
  ring::JournalRecord* add_result(uint64_t seq, uint64_t index, uint64_t bytes);
  // What such a record has beside the digest; nullptr: nothing. And the samples, one by one.
  static ring::JournalResult* result(ring::JournalRecord* record);
  static std::byte* told(ring::JournalRecord* record);
  // Whether the entry should have had a record and there was no room.
  bool lost(uint64_t seq) const;
  uint64_t used() const;
  // Something has been lost since the last snapshot.
  bool lacks() const { return header_ && header_->journal_lost.load(); }

  // A cut with this number has been snapshotted: records of earlier entries are free.
  void release_before(uint64_t seq);
  bool exists() const { return header_ != nullptr; }
  // Where the data lies, for a backend that wants it registered.
  std::byte* area() const { return area_; }
  uint64_t area_bytes() const { return header_ ? header_->journal_bytes : 0; }

 private:
  ring::JournalRecord* at(uint64_t position) const;
  bool back(uint64_t begin, uint64_t end);
  void lose(uint64_t seq);
  void watch_room();
  void want_snapshot();
  bool has_room(uint64_t data_bytes) const;
  uint64_t first_lost_from(uint64_t seq) const;

  ring::Channel& channel_;
  ring::StoreHeader* header_ = nullptr;
  std::byte* area_ = nullptr;
  uint64_t backed_ = 0;  // positions below are backed by memory
  std::map<Key, ring::JournalRecord*> old_;
  // Entries without room that no snapshot has passed, by number; beyond kMostLost the last one
  // only.
  std::vector<uint64_t> lost_;
  uint64_t last_lost_ = 0;
  bool said_high_ = false, said_lost_ = false;
  bool wanted_ = false;     // a snapshot, because the journal fills
  uint64_t wanted_ns_ = 0;  // the last time
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_REPLAY_JOURNAL_H_
