// Everything between attaching and the end of a session: one client, one device. Members lie in the
// order in which they are made: each needs only what is above it.
#ifndef PYFT_SERVER_SERVER_H_
#define PYFT_SERVER_SERVER_H_

#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "checkpoint/snapshot/snapshotter.h"
#include "checkpoint/store/store.h"
#include "server/attach.h"
#include "server/auditor.h"
#include "server/dmr/reports.h"
#include "server/loop.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/agent_requests.h"
#include "server/recovery/communicators.h"
#include "server/recovery/cut_orders.h"
#include "server/recovery/lone_communicators.h"
#include "server/recovery/peer_export.h"
#include "server/recovery/peer_import.h"
#include "server/recovery/rebuilt_communicators.h"
#include "server/recovery/session_device.h"
#include "server/session/collective_marks.h"
#include "server/session/session.h"
#include "server/standby.h"
#include "server/stream_words.h"
#include "server/watchdog.h"

namespace pyft::server {

class Server {
 public:
  // For the device whose context is current in this thread, its window reserved; if an earlier
  // server has worked for the client, the device gets the state of the committed snapshot. The
  // arguments outlive the result. nullptr and why: the store is of no use.
  static std::unique_ptr<Server> make(const Attachment& attachment, const backend::Backend& backend,
                                      CUcontext context, Standby& standby, std::string* error);
  ~Server() { spilling_.set(nullptr); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves the client. In the thread that has made this.
  Loop::End run() { return loop_->run(); }
  // Why the last run has ended in a protocol error, and after which entries.
  const std::string& error() const { return loop_->error(); }
  void print_last_entries() const;

 private:
  // All that it needs is set before another thread knows it.
  struct ReadySession : Session {
    explicit ReadySession(Server& server);
  };
  // What snapshots do between entries.
  class BetweenEntries : public Loop::Hooks {
   public:
    explicit BetweenEntries(Server& server) : server_(server) {}
    void before(const ring::EntryView& next) override;
    void turn() override;
    void idle() override;
    void cut(const ring::EntryView& entry, const ring::CutMark& cut) override;
    void gate() override;
    int device() override;

   private:
    Server& server_;
  };

  // The agent's messages.
  class Orders : public AgentLink::Handler {
   public:
    explicit Orders(Server& server) : server_(server) {}
    bool take(const AgentMessage& message) override;

   private:
    Server& server_;
  };

  Server(const Attachment& attachment, const backend::Backend& backend, CUcontext context,
         std::unique_ptr<checkpoint::Store> store);
  uint64_t prepare(Standby& standby);
  void tell_communicators();
  void take_snapshots();
  std::string audit();

  const Attachment& attachment_;
  const backend::Backend& backend_;
  const CUcontext context_;
  const int ordinal_;
  const ServerLiveness liveness_;
  const std::unique_ptr<checkpoint::Store> store_;  // nullptr: faults are not repaired
  const std::unique_ptr<StreamWords> words_;
  const std::unique_ptr<CollectiveMarks> marks_;
  const std::unique_ptr<DeviceCalls> device_calls_;
  AgentReports reports_;
  ReadySession session_;
  const StreamWords::Watch watch_;
  const Heartbeat heartbeat_;
  RepairedCommunicators repaired_;
  std::optional<RebuiltCommunicators> rebuilt_;  // where all ranks replay: instead
  LoneCommunicators lone_;                       // in an audit: instead
  Decided decided_;
  Spilling spilling_;
  PeerExport exports_;
  Orders orders_{*this};
  AgentLink agent_;
  AgentRequests requests_;
  dmr::Reports mismatches_;
  CutMessages cut_messages_;
  // Where faults are repaired; before the loop, which starts where they leave the device.
  std::optional<SessionDevice> device_;
  std::optional<OtherRanks> others_;
  BetweenEntries between_entries_{*this};
  std::optional<Loop> loop_;
  std::optional<checkpoint::Snapshotter> snapshotter_;
  std::optional<Auditor> auditor_;  // then no snapshots
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_SERVER_H_
