// The audit of a rank: this process has the rank's log, its journal and its committed snapshot, all
// of it read-only or private, and a GPU of its own. It replays up to the cut that waits to become
// the next snapshot, compares, tells the agent what it has found, and ends.
#ifndef PYFT_SERVER_AUDITOR_H_
#define PYFT_SERVER_AUDITOR_H_

#include <memory>
#include <string>

#include "checkpoint/device.h"
#include "checkpoint/snapshot/audit.h"
#include "checkpoint/store/store.h"
#include "server/loop.h"
#include "server/recovery/agent_link.h"
#include "server/session/session.h"

namespace pyft::server {

// Code in the last words of an auditor that cannot tell whether a value of the rank is right: none
// of CUDA's.
inline constexpr int kCannotTell = -1;

class Auditor : public Loop::Hooks {
 public:
  // Up to the cut of this entry. All outlive it.
  Auditor(Session& session, const checkpoint::Store& store, checkpoint::Device device,
          AgentLink& agent, uint64_t entry);
  // The store has the table of that cut, and the snapshot before it. Empty, or why not.
  std::string lacks() const;

  // At the cut: ends the process.
  void before(const ring::EntryView& next) override;

 private:
  [[noreturn]] void finish();
  [[noreturn]] void fail(const std::string& why, int code = 0);
  std::string await_device();

  Session& session_;
  const checkpoint::Store& store_;
  const checkpoint::Device device_;
  AgentLink& agent_;
  const uint64_t entry_;
  checkpoint::Findings findings_;
};

// An auditor's page says how far another server was: here it replays whatever comes.
void replay_all(ring::ControlPage& page);

}  // namespace pyft::server

#endif  // PYFT_SERVER_AUDITOR_H_
