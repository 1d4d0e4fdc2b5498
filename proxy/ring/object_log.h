// What must be done again in a new server: creations and settings still in force, with bodies and
// payloads by value, in creation order. Written by the client at commit, under the writer's mutex.
//
// An entry here is an EntryHeader (flags of the ring entry plus kHasPayload when a payload
// follows), the body, and the payload padded to kEntryAlign; `size` covers all three and
// payload_position is the payload's byte offset from the start of the entry. Positions grow as in
// the ring.
//
// Convention object_key: the first 8 bytes of the body name the object (handle value or device
// address) in every entry with kCreates or kDestroys.
//
// What has been destroyed may still be needed to make something else again: a graph for its
// executable, memory for where it is mapped, kernels and events for a graph that was captured. Such
// users name it by its handle in their bodies. Its entries stay, followed by that of its end, until
// the last user is gone. Kernels end with their module, unless a graph uses them.
//
// Entries with kStreamCaptured are what a stream has captured, from the beginning of the capture to
// its end. The last one creates the graph, and all of them are the graph's from then on.
#ifndef PYFT_RING_OBJECT_LOG_H_
#define PYFT_RING_OBJECT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "pyft/function_ref.h"
#include "ring/channel.h"

namespace pyft::ring {

uint64_t object_key(std::span<const std::byte> body);
// The entry has made nothing, as its server has said: it is not repeated, since another server
// might make it, such as memory for which there is room now. But for a communicator, which other
// ranks may have made all the same.
bool is_refused(const EntryHeader& header, std::span<const std::byte> body);

class ObjectLog {
 public:
  explicit ObjectLog(Channel& channel);

  // Adds a creation or setting, or ends the object that a kDestroys entry names. False: no room
  // even after compaction; counted in LogHeader.object_log_lost.
  bool fold(const EntryHeader& header, std::span<const std::byte> body,
            std::span<const std::byte> payload);
  // The creation with this sequence number failed on the server after all.
  void forget(uint64_t seq);
  // A capture has ended without a graph.
  void forget_capture();
  // Objects that live and are not whole here.
  uint64_t missing() const { return missing_.size(); }

  uint64_t live_bytes() const { return live_bytes_; }
  uint64_t compactions() const { return compactions_; }

 private:
  struct Live {
    uint64_t position;
    uint64_t seq;
    uint16_t call;
  };
  bool fold_captured(const EntryHeader& header, std::span<const std::byte> body,
                     std::span<const std::byte> payload);
  bool add(uint64_t key, const EntryHeader& header, std::span<const std::byte> body,
           std::span<const std::byte> payload);
  void end(uint64_t key, const EntryHeader& header, std::span<const std::byte> body);
  void drop(uint64_t key);
  void release(uint64_t key);
  bool is_used(uint64_t key) const;
  EntryHeader* at(uint64_t position) const;
  bool repeats_last_setting(const std::vector<Live>& live, const EntryHeader& header,
                            std::span<const std::byte> body) const;
  bool append(const EntryHeader& header, std::span<const std::byte> body,
              std::span<const std::byte> payload, uint64_t* position);
  bool reserve(uint64_t bytes, uint64_t* position);
  bool back(uint64_t begin, uint64_t end);
  void kill(const Live& live);
  void miss(uint64_t key, uint64_t seq);
  void miss_no_more(uint64_t key);
  void show_missing();
  void watch_room();
  bool is_to_be_compacted(uint64_t bytes) const;
  void skip_dead();
  void compact();

  Channel& channel_;
  std::unordered_map<uint64_t, std::vector<Live>> live_;    // key -> its entries, oldest first
  std::unordered_map<uint64_t, std::set<uint64_t>> users_;  // of an object: what names it
  std::unordered_map<uint64_t, std::set<uint64_t>> uses_;   // the other way round
  std::set<uint64_t> ended_;                                // destroyed and still in use
  std::unordered_map<uint64_t, uint64_t> missing_;          // key -> last entry without room
  bool said_high_ = false, said_missing_ = false;
  uint16_t capture_begins_ = 0;  // call that the open capture begins with
  uint64_t live_bytes_ = 0, dead_bytes_ = 0, compactions_ = 0;
  uint64_t backed_ = 0;  // position before which pages are allocated
};

// Calls `each` for every live entry in order; false with a sentence when the log is damaged.
bool for_each_object(const LogView& log,
                     FunctionRef<void(const EntryHeader&, std::span<const std::byte> body,
                                      std::span<const std::byte> payload)>
                         each,
                     std::string* error);

}  // namespace pyft::ring

#endif  // PYFT_RING_OBJECT_LOG_H_
