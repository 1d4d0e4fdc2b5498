// What a new server copies straight from the GPUs of living replicas. docs/recovery.md, "From other
// GPUs".
//
// A replica has most of a recovery point at the same offsets of its window, as long as it has not
// passed the next optimizer step. Nobody asks whether it has: blocks are copied within the device
// or between devices while its program goes on, and then hashed. What is not what it must be comes
// from the stores, as if nobody had tried.
//
//   new server   kWantPeer to the agent, which gives both servers an end of a connection
//   new server   kWantMemory: an offset in the window
//   replica      kMemory: the mapping that has it, and a descriptor of its memory
//   (lending_memory.h)
//
// That memory is mapped, to be read, at addresses outside of the program's window, until all copies
// from it have been made. Dispatch thread.
#ifndef PYFT_SERVER_RECOVERY_PEER_MEMORY_H_
#define PYFT_SERVER_RECOVERY_PEER_MEMORY_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "server/recovery/calls.h"
#include "server/session.h"

namespace pyft::server {

class PeerMemory {
 public:
  // The end of a connection to the server of a living replica, which is given away; -1: there is
  // none, or no other.
  using Ask = std::function<int(uint64_t attempt)>;
  struct Limits {
    uint64_t answers_ns = 5'000'000'000;  // what all answers of a replica may take
    uint64_t copy_ns = 60'000'000'000;    // and the copies of a round
    uint64_t refusals = 16;               // in a row: it lends nothing
    uint64_t least_bytes = 16384;         // of a block that is worth a question
    // So many more bytes have been wrong than right: the replica has gone on.
    uint64_t wasted_bytes = uint64_t{256} << 20;
    uint64_t round_bytes = uint64_t{64} << 20;  // of the first round, each has twice as many
  };
  // The table must outlive this. `window`: of the program.
  PeerMemory(const backend::Table& table, int ordinal, MemoryRange window, Ask ask)
      : PeerMemory(table, ordinal, window, std::move(ask), Limits()) {}
  PeerMemory(const backend::Table& table, int ordinal, MemoryRange window, Ask ask, Limits limits)
      : table_(table), ordinal_(ordinal), window_(window), ask_(std::move(ask)), limits_(limits) {}
  PeerMemory(const PeerMemory&) = delete;
  ~PeerMemory();

  // RecoveryCalls::from_peers.
  std::string fetch(std::span<const ring::ManifestBlock> blocks, const CheckBlocks& check,
                    std::vector<bool>* there);
  // Why a replica was of no use, the last one; empty: each that was asked was.
  const std::string& refusal() const { return refusal_; }

 private:
  class Peer;
  std::vector<size_t> worth_asking(std::span<const ring::ManifestBlock> blocks,
                                   const std::vector<bool>& there) const;
  bool prepare();
  std::string from(Peer& peer, std::span<const ring::ManifestBlock> blocks,
                   const CheckBlocks& check, std::vector<size_t>* left, std::vector<bool>* there);

  const backend::Table& table_;
  const int ordinal_;
  const MemoryRange window_;
  const Ask ask_;
  const Limits limits_;
  CUstream stream_ = nullptr;
  std::string refusal_;
};

MemoryRange device_window(uint32_t device);

// For a server that replaces another, where it is worth it (PYFT_PEER_MEMORY). Not for one that
// makes a second attempt, entry by entry: should a replica's GPU have been the reason, it is left
// alone.
void use_peers(Session& session, PeerMemory::Ask ask, RecoveryCalls* calls);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_PEER_MEMORY_H_
