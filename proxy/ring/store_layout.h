// What survives a device: the memory object `store` of a channel. Written by the server of the
// channel, owned by the agent, read by the next server. Sparse: the server backs pages (fallocate)
// before it writes them, so that missing memory is an answer and not a SIGBUS.
//
//   header | communicators | three manifests | shares | journal | records | heap
//
// A crash at any instruction leaves it usable: a manifest counts once `current` names it, a journal
// record once `journal_end` has passed it and its state says so.
#ifndef PYFT_RING_STORE_LAYOUT_H_
#define PYFT_RING_STORE_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "ring/layout.h"

namespace pyft::ring {

inline constexpr uint32_t kStoreMagic = 0x53544650;  // "PFTS"
inline constexpr uint32_t kStoreVersion = 4;
inline constexpr uint32_t kMaxCommunicators = 256;
inline constexpr uint32_t kCommunicatorSettings = 240;

// Areas; the heap is the rest of the object. All sparse.
inline constexpr uint64_t kManifestBytes = uint64_t{64} << 20;
inline constexpr uint64_t kSharesBytes = uint64_t{4} << 20;
inline constexpr uint64_t kJournalBytes = uint64_t{1} << 30;
// Shared out to kMaxCommunicators: 1 GiB each. Of a small store, its half.
inline constexpr uint64_t kRecordsBytes = uint64_t{256} << 30;

// Which digest contents are known by; other digests in a store are XXH3 at any time.
enum class DigestKind : uint32_t {
  kXxh3 = 0,
  kNh = 1,  // checkpoint/digest/nh.h
};

struct StoreHeader {
  uint32_t magic, version;
  uint64_t bytes;                 // of the object
  uint64_t communicators_offset;  // kMaxCommunicators StoredCommunicator
  uint64_t manifest_offset[2];    // kManifestBytes each
  uint64_t journal_offset, journal_bytes;
  uint64_t records_offset, records_bytes;
  uint64_t heap_offset, heap_bytes;
  std::atomic<uint32_t> current;  // 0: no snapshot yet; 1, 2: the manifest that counts
  uint32_t reserved;
  alignas(64) std::atomic<uint64_t> journal_begin;  // position of the first record that counts
  std::atomic<uint64_t> journal_end;                // after the last record
  std::atomic<uint64_t> journal_lost;  // first entry since the last snapshot without room, or 0
  // Figures for status and report.
  alignas(64) std::atomic<uint64_t> snapshots, cancelled;
  std::atomic<uint64_t> live_blocks, live_bytes;     // of the last cut
  std::atomic<uint64_t> hashed_bytes, copied_bytes;  // sums
  // Sums, at cuts: waiting for the streams; looking at what is not copied then; copying, with
  // digests.
  std::atomic<uint64_t> drain_ns, hash_ns, copy_ns;
  std::atomic<uint64_t> heap_used, heap_backed;
  // What the first snapshot protects, by size: blocks that an allocator has handed out, other
  // memory of the program, variables and heaps of kernels, and what is left out as scratch.
  std::atomic<uint64_t> block_bytes, mapped_bytes, hidden_bytes, scratch_bytes;
  std::atomic<uint64_t> cut_every;        // each K-th cut is snapshotted, for the cost
  std::atomic<uint64_t> skipped;          // cuts that were not snapshotted because of that
  std::atomic<uint64_t> unchanged_bytes;  // sum: hashed and found in the store
  std::atomic<uint64_t> cut_ns;           // sum: all of the work at snapshots
  // Of the digests; the agent sets it before the first server comes, the same for all of a job.
  uint64_t seed;
  // Sums: background copies, also part of copied_bytes; the time that took, in any thread; and how
  // long commands were kept waiting for it.
  std::atomic<uint64_t> later_bytes, later_ns, gate_ns;
  // Agent: a snapshot waits for other ranks. 1: they may have the same contents, which are
  // compared; 2: they go back together, and all have to hold it.
  std::atomic<uint32_t> compares;
  uint32_t reserved1;
  std::atomic<uint64_t> compared_cuts;   // snapshots that the agent has compared
  std::atomic<uint64_t> unchecked_cuts;  // published without waiting any longer
  // Agent: the step of the last cut that it knows of, since when (CLOCK_MONOTONIC), and the step of
  // the cut about which replays decide, 0 for none.
  std::atomic<uint64_t> taken_step, taken_ns, disputed_step;
  // Sum: how long commands were kept waiting for snapshots, gate_ns included. Not cut_ns: what is
  // done while the client has nothing for the server keeps nothing waiting.
  std::atomic<uint64_t> kept_ns;
  // Snapshots that ranks share: what this rank leaves to others, by the agent. Changed by writing
  // an odd version, the rows, their number, and the next even one.
  uint64_t shares_offset, shares_bytes;  // SharedBlock
  std::atomic<uint64_t> shares_version, shares_rows;
  std::atomic<uint32_t> shares;  // agent, 1: snapshots of this rank and of others name each other
  // 1: blocks of an older snapshot that other ranks' snapshots may name, in the manifest that lies
  // here, are kept.
  std::atomic<uint32_t> lends;
  uint64_t lent_offset;
  std::atomic<uint64_t> elsewhere_bytes;  // of the last cut: in other ranks' stores
  // Sum, at cuts: what was read from the device, to be hashed or copied.
  std::atomic<uint64_t> fetched_bytes;
  // Of the blocks' digests: the server sets it before the first snapshot.
  std::atomic<DigestKind> digest_kind;
  uint32_t reserved2;
  // With --protect jit: copies in the GPU's memory now; sums: what was written into the store for
  // other ranks' sake, and blocks that had changed before they were copied.
  std::atomic<uint64_t> pre_image_bytes, spilled_bytes, lost_blocks;
  // Bytes of the journal in use at the last cut; how often it was full since a snapshot.
  std::atomic<uint64_t> journal_used, journal_losses;
};
static_assert(sizeof(StoreHeader) <= kPageBytes);

struct Digest {  // 128-bit keyed hash
  uint64_t low, high;
  bool operator==(const Digest&) const = default;
};

// A committed snapshot: device memory after all entries before the CUT at `position`.
struct Manifest {
  uint64_t cut;       // number
  uint64_t seq;       // of the CUT entry
  uint64_t position;  // ring position after the CUT entry: replay starts there
  uint64_t blocks;    // ManifestBlock follow
  uint64_t places;    // ManifestPlace follow these
  uint64_t bytes;     // of all blocks
  uint64_t step;      // of the program, which other ranks have as well; 0: a cut of this rank alone
  Digest checksum;    // of the numbers above and of both tables
};

struct ManifestBlock {
  uint64_t address, bytes;
  Digest digest;
  uint64_t heap_offset;  // in the heap, or kElsewhere + the id of the member whose store has it
  // The entry at which the client first saw that it holds what it holds now: the gradient of the
  // same parameter, or none after one. 0: it has never seen a gradient there.
  uint64_t since = 0;
};
inline constexpr uint64_t kElsewhere = uint64_t{1} << 63;
inline bool is_remote(const ManifestBlock& block) {
  return block.heap_offset >= kElsewhere;
}
inline uint64_t owner_of(const ManifestBlock& block) {
  return block.heap_offset - kElsewhere;
}

// A block whose content another rank's store keeps for this one.
struct SharedBlock {
  uint64_t address, bytes;
  uint64_t owner;  // id of the member
};

// Memory that the device takes for itself and that must come back where it was, since addresses in
// it are all over the device's memory.
struct ManifestPlace {
  uint64_t address, bytes;
  uint64_t owner;  // handle of a module; 0: the heap of kernels
};

enum class JournalKind : uint16_t {
  kSource = 1,      // bytes that a copy read from pinned memory
  kResult = 2,      // digest and sample of the bytes that a copy put into client memory
  kCollective = 3,  // what a collective left here, and the digest of what this rank put in
  kRuns = 4,        // of a cut: how often a host function in a graph has run, in `word`
};

// Precedes every journal record; the next one follows at + size (a multiple of 64). A record with
// kind 0 is a pad up to the end of the area.
struct JournalRecord {
  uint64_t size;
  uint16_t kind;
  uint16_t reserved;
  std::atomic<uint32_t> filled;  // 1: data or digest are complete
  uint64_t seq;                  // the entry
  uint64_t index;                // number among the records of this entry
  uint64_t bytes;                // of data or of what the digest covers
  Digest digest;
  uint64_t word;  // what the digest covers, if that is 8 bytes or less
};
static_assert(sizeof(JournalRecord) <= 64);

// The data of a result: what the last replay has found in its place, and two samples of the same
// size, of what the program was told and of that.
struct JournalResult {
  Digest again;
  std::atomic<uint32_t> repeated;  // 1: the digest and the second sample are complete
};
inline constexpr uint64_t kJournalResultBytes = 64;
static_assert(sizeof(JournalResult) <= kJournalResultBytes);

// One communicator of this client, for the server that makes it again.
struct StoredCommunicator {
  uint64_t handle;  // 0: unused
  uint64_t seq;     // of the entry that made it
  uint64_t key;     // names the communicator at all its ranks
  int32_t rank, size;
  uint64_t ended_seq;  // of the entry that destroyed it, 0: it lives
  // Operations complete at two cuts, one of which is that of the current manifest. Where all ranks
  // replay: collectives that were counted.
  uint64_t line_cut[2], line_operation[2];
  // With which the program had it made; none: NCCL's own choices.
  uint64_t settings_bytes;
  std::byte settings[kCommunicatorSettings];
};

}  // namespace pyft::ring

#endif  // PYFT_RING_STORE_LAYOUT_H_
