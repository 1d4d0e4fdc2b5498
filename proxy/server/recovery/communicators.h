// Communicators across the death of a server. Each has a region of records in the store, in which
// flexccl leaves what a replay needs, and a line in the store's table, which says what it is.
// flexccl/README.md, "Records and replay across processes", has the calls in their order.
#ifndef PYFT_SERVER_RECOVERY_COMMUNICATORS_H_
#define PYFT_SERVER_RECOVERY_COMMUNICATORS_H_

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "backend/repair.h"
#include "checkpoint/recovery/recovery.h"
#include "checkpoint/resources/communicators.h"
#include "ring/store_layout.h"
#include "server/recovery/agent_link.h"

namespace pyft::server {

class RepairedCommunicators : public checkpoint::CommunicatorRecovery {
 public:
  // No effect, and every question answered in the negative, without a store or without flexccl.
  RepairedCommunicators(ring::Channel& channel, checkpoint::Recovery& recovery);

  bool active() const { return repair_ != nullptr; }
  bool can_replace() const override { return active(); }
  // Before anything else is done with communicators.
  void start(AgentLink* link);

  // Takes the places of the server before: every communicator in the table is made again, from its
  // records and with those that live. Empty, or what is in the way.
  std::string rejoin() override;
  // The communicator that entry `seq` made as `handle`, for entries that are not repeated.
  void* made_before(uint64_t handle, uint64_t seq) override;

  // A communicator exists from now on (from the entry `seq`); gives it its records.
  void made(void* comm, uint64_t handle, uint64_t seq, int rank, int size) override;
  void ended(uint64_t handle, uint64_t seq) override;
  void let_go(uint64_t handle) override;
  void failed(void* comm) override;
  void minted(std::span<const std::byte> id) override;

  void at_cut(uint64_t cut) override;
  // A replacement that begins at this cut has no messages, and no parts of scattered sums, from
  // before it, so that ranks that need them must have them.
  bool acknowledged(uint64_t cut) override;
  // Records fill their memory, which snapshots free.
  bool log_pressure() override;
  void published(uint64_t cut, uint64_t seq) override;

  // Orders of the agent that concern communicators; false: it is none.
  bool order(const AgentMessage& message);

 private:
  struct Line {  // operations complete at a snapshot
    uint64_t cut, operation, done;
  };
  struct Live {
    void* comm;
    uint64_t key;
    int rank;
    std::deque<Line> uncommitted = {};
    bool failed = false;
    uint64_t ask_ns = 0, pause_ns = 0;  // when the others are asked next, and then again
  };
  std::string rejoin_one(ring::StoredCommunicator& entry, uint64_t cut);
  // flexcclSetMaking.
  int on_the_way(uint64_t key, int rank, int size, int lost);
  void tell_when_making();
  static std::string named(uint64_t key);
  // From the records alone, where no other rank has it.
  std::string adopt(const ring::StoredCommunicator& entry, uint64_t operation);
  void say_why(int code, uint64_t key, int rank) const;
  std::string take_place(const backend::RegionHead& head, std::span<std::byte> records,
                         uint64_t operation, const std::vector<std::byte>& exported);

  ring::Channel& channel_;
  checkpoint::Recovery& recovery_;
  checkpoint::CommunicatorTable table_;
  std::unique_ptr<backend::Repair> repair_;
  AgentLink* link_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Live> live_;  // by handle
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_COMMUNICATORS_H_
