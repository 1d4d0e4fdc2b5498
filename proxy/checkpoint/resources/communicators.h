// Communicators: what a snapshot keeps of them, and how a new server gets them back.
//
// Save: each has an entry in a table of the store, and a region of records beside it, in which
// flexccl leaves what a replay needs; entries outlive snapshots, and a snapshot notes how far each
// communicator was at its cut. Restore: rejoin() goes through the table, before any object is made.
// The server has two ways of that: server/recovery/communicators.h, where a new rank takes the
// place of the old one, and rebuilt_communicators.h, where all ranks make them anew.
#ifndef PYFT_CHECKPOINT_RESOURCES_COMMUNICATORS_H_
#define PYFT_CHECKPOINT_RESOURCES_COMMUNICATORS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ring/channel.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

// Save: what this rank's communicators keep for others. By default there is no other rank.
class CommunicatorState {
 public:
  virtual ~CommunicatorState() = default;
  // All streams have come to their ends at this cut, which may become the committed snapshot.
  virtual void at_cut(uint64_t /*cut*/) {}
  // The other ranks have all that only this process can give them of what came before this cut,
  // which becomes the committed snapshot no sooner. Any thread.
  virtual bool acknowledged(uint64_t /*cut*/) { return true; }
  // What has to be kept from one snapshot to the next fills its room.
  virtual bool log_pressure() { return false; }
  // It is the committed snapshot: `seq` is the entry of the cut. Any thread.
  virtual void published(uint64_t /*cut*/, uint64_t /*seq*/) {}
};

// Restore, and what handlers tell of communicators and ask when objects are made again.
class CommunicatorRecovery : public CommunicatorState {
 public:
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
  // What is not there at the committed snapshot was ended before it.
  virtual bool makes_all_again() const { return false; }
  // Before a communicator is destroyed: waits until no other rank needs what is kept here for it,
  // such as one that is being replaced, but not for ever.
  virtual void let_go(uint64_t handle) = 0;
};

// The table of the store. Its users see to it that only one thread at a time changes it.
class CommunicatorTable {
 public:
  // Without a store: nothing may be called.
  explicit CommunicatorTable(ring::Channel& channel);

  // Save.
  // The entry of what `seq` has made as `handle`, else an unused one (its handle is 0); nullptr:
  // there is none, of which the first time tells the log.
  ring::StoredCommunicator* entry_for(uint64_t handle, uint64_t seq);
  // Uses an unused entry; a server that dies on the way leaves it unused.
  static void put(ring::StoredCommunicator* entry, const ring::StoredCommunicator& what);
  // Of what lives under this handle; nullptr: nothing does.
  ring::StoredCommunicator* living(uint64_t handle) const;
  // The operations complete at this cut; what the committed snapshot has noted stays.
  void note_line(ring::StoredCommunicator* entry, uint64_t cut, uint64_t operation) const;
  // Calls `drop` for each that had ended before entry `seq`.
  template <class Drop>
  void ended_before(uint64_t seq, Drop drop) const {
    for (ring::StoredCommunicator& entry : all())
      if (entry.handle && entry.ended_seq && entry.ended_seq < seq) drop(entry);
  }
  // Is unused from now on.
  static void drop(ring::StoredCommunicator& entry);
  // Its records are given up, and so is their memory.
  void drop_records(const ring::StoredCommunicator& entry) const;

  // Restore.
  std::span<ring::StoredCommunicator> all() const;
  // Of the committed snapshot; without one, all zeros.
  ring::Manifest committed() const;
  // The operations complete at this cut; 0: it was made after that.
  static uint64_t line(const ring::StoredCommunicator& entry, uint64_t cut);

  // The region of an entry.
  std::span<std::byte> records(const ring::StoredCommunicator& entry) const;

 private:
  ring::Channel& channel_;
  ring::StoreHeader* const header_;
  bool said_full_ = false;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RESOURCES_COMMUNICATORS_H_
