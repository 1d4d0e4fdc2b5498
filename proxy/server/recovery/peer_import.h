// What a new server copies straight from the GPUs of living replicas. docs/concepts/sharing.md.
//
// A replica has most of a committed snapshot at the same offsets of its window, as long as it has
// not passed the next optimizer step. Nothing asks whether it has: blocks are copied within the
// device or between devices while its program goes on, and then hashed. What is not what it must be
// comes from the stores, as if nothing had been tried.
//
//   new server   kWantPeer to the agent, which gives both servers an end of a connection
//   new server   kWantMemory: an offset in the window
//   replica      kMemory: the mapping that has it, and a descriptor of its memory
//   (peer_export.h)
//
// That memory is mapped, to be read, at addresses outside of the program's window, until all copies
// from it have been made. Dispatch thread.
#ifndef PYFT_SERVER_RECOVERY_PEER_IMPORT_H_
#define PYFT_SERVER_RECOVERY_PEER_IMPORT_H_

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/memory_range.h"
#include "checkpoint/ranks.h"
#include "checkpoint/store/remote_stores.h"
#include "server/recovery/agent_link.h"
#include "server/session/session.h"

namespace pyft::server {

// The servers of living replicas.
class PeerServers {
 public:
  virtual ~PeerServers() = default;
  // The end of a connection to one, which is given away; -1: there is none, or no other.
  virtual int connect(uint64_t attempt) = 0;
};

class PeerImport {
 public:
  struct Limits {
    uint64_t answers_ns = 5'000'000'000;  // what all answers of a replica may take
    uint64_t copy_ns = 60'000'000'000;    // and the copies of a round
    uint64_t refusals = 16;               // in a row: it lends nothing
    uint64_t least_bytes = 16384;         // of a block that is worth a question
    // So many more bytes have been wrong than right: the replica has gone on.
    uint64_t wasted_bytes = uint64_t{256} << 20;
    uint64_t round_bytes = uint64_t{64} << 20;  // of the first round, each has twice as many
  };
  // Table and servers must outlive this. `window`: of the program.
  PeerImport(const backend::Table& table, int ordinal, checkpoint::MemoryRange window,
             PeerServers& servers)
      : PeerImport(table, ordinal, window, servers, Limits()) {}
  PeerImport(const backend::Table& table, int ordinal, checkpoint::MemoryRange window,
             PeerServers& servers, Limits limits)
      : table_(table), ordinal_(ordinal), window_(window), servers_(servers), limits_(limits) {}
  PeerImport(const PeerImport&) = delete;
  ~PeerImport();

  // As RemoteBlocks::from_peers.
  std::string fetch(std::span<const ring::ManifestBlock> blocks, checkpoint::BlockCheck& check,
                    std::vector<bool>* there);
  // Why a replica was of no use, the last one; empty: each that was asked was.
  const std::string& refusal() const { return refusal_; }

 private:
  class Peer;
  std::vector<size_t> worth_asking(std::span<const ring::ManifestBlock> blocks,
                                   const std::vector<bool>& there) const;
  bool prepare();
  std::string from(Peer& peer, std::span<const ring::ManifestBlock> blocks,
                   checkpoint::BlockCheck& check, std::vector<size_t>* left,
                   std::vector<bool>* there);

  const backend::Table& table_;
  const int ordinal_;
  const checkpoint::MemoryRange window_;
  PeerServers& servers_;
  const Limits limits_;
  CUstream stream_ = nullptr;
  std::string refusal_;
};

checkpoint::MemoryRange device_window(uint32_t device);

// For a server that replaces another, where it is worth it (PYFT_PEER_MEMORY), which is where the
// device `hashes`; else nullptr. Not for one that makes a second attempt, entry by entry: should a
// replica's GPU have been the reason, it is left alone.
std::unique_ptr<PeerImport> make_peer_import(Session& session, PeerServers& servers, bool hashes);

// All that a new server can get from other ranks: from their stores, and from their GPUs where
// there is one of `peers`. The arguments outlive the object.
class OtherRanks : public checkpoint::RemoteBlocks {
 public:
  OtherRanks(const Session& session, checkpoint::StoreSource& stores, checkpoint::DigestKey key,
             std::unique_ptr<PeerImport> peers)
      : session_(session), stores_(key, stores), peers_(std::move(peers)) {}
  const std::byte* content(const ring::ManifestBlock& block, std::string* problem) override {
    return stores_.content(block, problem);
  }
  const std::byte* likely_content(const ring::ManifestBlock& block) override {
    return stores_.likely_content(block);
  }
  std::string from_peers(std::span<const ring::ManifestBlock> blocks, checkpoint::BlockCheck& check,
                         std::vector<bool>* there) override;

 private:
  const Session& session_;
  checkpoint::RemoteStores stores_;
  const std::unique_ptr<PeerImport> peers_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_PEER_IMPORT_H_
