// This GPU's memory, lent to new servers of other ranks, which copy from it what they have lost
// (peer_import.h, which says what the two say to each other). docs/concepts/sharing.md.
//
// In threads of its own, one per borrower: the dispatch thread may stand in a collective, waiting
// for the very rank that is being replaced. They ask the driver only, and know nothing of what the
// dispatch thread has; what it does to that memory meanwhile is the business of the borrower, which
// compares digests.
#ifndef PYFT_SERVER_RECOVERY_PEER_EXPORT_H_
#define PYFT_SERVER_RECOVERY_PEER_EXPORT_H_

#include <atomic>
#include <list>
#include <thread>

#include "backend/backend.h"
#include "checkpoint/memory_range.h"
#include "pyft/unique_fd.h"
#include "server/recovery/agent_link.h"
#include "server/session/device_calls.h"

namespace pyft::server {

class PeerExport {
 public:
  // The program's window, of which nothing else is lent. The others outlive this.
  PeerExport(const backend::Table& table, checkpoint::MemoryRange window, DeviceThreads& threads)
      : table_(table), window_(window), threads_(threads) {}
  PeerExport(const PeerExport&) = delete;
  // Waits for the threads: a look, and a call of the driver's, at most.
  ~PeerExport() = default;

  // The agent has brought a borrower. The link's thread only; false: it is about something else.
  bool lend(const AgentMessage& message);

 private:
  static constexpr size_t kMostBorrowers = 16;
  struct Lender {
    std::atomic<bool> done{false};
    std::jthread thread;
  };
  void serve(const std::stop_token& stop, int link) const;
  void answer(int link, uint64_t offset) const;
  int find(uint64_t address, checkpoint::MemoryRange* mapping, UniqueFd* memory) const;

  const backend::Table& table_;
  const checkpoint::MemoryRange window_;
  DeviceThreads& threads_;
  std::list<Lender> lenders_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_PEER_EXPORT_H_
