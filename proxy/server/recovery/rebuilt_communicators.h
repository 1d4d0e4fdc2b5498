// Communicators that cannot be repaired, because an abort leaves partial results: when a server of
// a member dies, the agent ends those of all members, and the new ones make the communicators
// again, under other ids, at the line from which all of them replay (pyft/recovery/rollback.py).
#ifndef PYFT_SERVER_RECOVERY_REBUILT_COMMUNICATORS_H_
#define PYFT_SERVER_RECOVERY_REBUILT_COMMUNICATORS_H_

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/repair.h"
#include "checkpoint/recovery/recovery.h"
#include "checkpoint/resources/communicators.h"
#include "ring/attach.h"
#include "ring/store_layout.h"
#include "server/recovery/agent_link.h"
#include "server/session/device_calls.h"

namespace pyft::server {

class RebuiltCommunicators : public checkpoint::CommunicatorRecovery {
 public:
  RebuiltCommunicators(ring::Channel& channel, checkpoint::Recovery& recovery,
                       const backend::Table& backend, DeviceThreads& device);
  void start(AgentLink* link) { link_ = link; }

  bool can_replace() const override { return true; }
  bool makes_all_again() const override { return true; }
  // Makes what existed at the committed snapshot, together with the other ranks' new servers.
  std::string rejoin() override;
  void* made_before(uint64_t handle, uint64_t seq) override;
  std::vector<std::byte> id_for(uint64_t handle, int rank, std::span<const std::byte> id) override;
  void divides(uint64_t handle, uint64_t parent, uint64_t how) override;
  void configures(uint64_t handle, uint64_t parent, std::span<const std::byte> settings) override;
  void collective(uint64_t handle) override;
  void message(uint64_t handle, int peer, bool sends) override;
  void lost_peer(int code, const std::string& sentence) override;
  void made(void* comm, uint64_t handle, uint64_t seq, int rank, int size) override;
  void ended(uint64_t handle, uint64_t seq) override;
  void let_go(uint64_t) override {}
  void failed(void* comm) override;

  // What the agent says of ranks that are replaced no more; false: it is something else.
  bool order(const AgentMessage& message);

  // Tells the agent how far each communicator was at the cut of entry `seq`, which waits in the
  // store; or how far it is now, where a cut was passed over. Any thread.
  void tell_prepared(uint64_t step, uint64_t seq);
  void tell_passed(uint64_t step);
  void at_cut(uint64_t cut) override;
  // What was ended before it is not made again.
  void published(uint64_t cut, uint64_t seq) override;

 private:
  struct Messages {
    uint64_t sent = 0, received = 0;
  };
  // Messages since the line, or since it was made; collectives since it was made, in any server.
  struct Live {
    void* comm = nullptr;
    uint64_t key = 0;
    int rank = 0;
    uint64_t collectives = 0;
    std::map<int, Messages> messages;  // by the other one's rank
    std::vector<std::byte> settings;
    uint64_t number = 0;  // by which flexccl knows it; 0: not yet
    bool failed = false;
  };
  // How far one was.
  struct Reached {
    msg::Line line;
    std::vector<ring::PairCounters> pairs;
  };
  // Precondition: mutex_ is held.
  std::vector<Reached> reached() const;
  void tell(const std::vector<Reached>& reached);
  void tell_who_left(const Live& live);
  void number_from(std::span<const std::byte> id, Live* live);
  std::vector<std::byte> ask_for_id(uint64_t key, int rank);
  void make_again(const ring::StoredCommunicator& entry);

  ring::Channel& channel_;
  checkpoint::Recovery& recovery_;
  const backend::Table& backend_;
  DeviceThreads& device_;
  checkpoint::CommunicatorTable table_;
  AgentLink* link_ = nullptr;
  std::mutex mutex_;
  std::map<uint64_t, Live> live_;           // by handle
  std::map<uint64_t, std::set<int>> left_;  // by key: ranks that have left
  std::vector<Reached> at_cut_;             // the last one that was snapshotted
  const std::unique_ptr<backend::Repair> flexccl_ = backend::Repair::load();
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_REBUILT_COMMUNICATORS_H_
