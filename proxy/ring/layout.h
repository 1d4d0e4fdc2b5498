// Every byte shared between client, server, agent and trace reader.
//
// CHANGE RULES. Fields may be appended into reserved space; never move, never change a meaning.
// Any other change, also of a fixed address, bumps kLayoutVersion: logs of another version are
// refused.
// Only shm-safe types: trivially copyable, fixed widths, no pointers, explicit padding.
//
// A channel joins one client process and one device. The agent creates its memory objects
// (memfd) and passes them by descriptor; sizes are in LogHeader / ControlPage and in the attach
// reply. All of it outlives client and server.
//
//   log      client read-write, server READ-ONLY: header | ring | object log | arena
//   control  both read-write: cursors of the server, reply slots, completion words, status
//   bounce   server writes, client reads: device-to-host bytes for pageable destinations
//   pinned   both read-write, mapped at the same address in both: cudaHostAlloc memory
//   store    server only, owned by the agent: snapshots, journal, records (store_layout.h)
//
// "Position" is a 64-bit byte count that only grows; it lies at `position % size` in its area
// (ring, object log, arena). Entries and payloads are contiguous: what does not fit before
// the end of its area starts at the next multiple of the size, and a kPad entry fills the gap. A
// pad may be shorter than an EntryHeader: only its size, call, flags and seq (16 bytes) are there.
#ifndef PYFT_RING_LAYOUT_H_
#define PYFT_RING_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace pyft::ring {

inline constexpr uint32_t kLogMagic = 0x4c544650;      // "PFTL"
inline constexpr uint32_t kControlMagic = 0x43544650;  // "PFTC"
inline constexpr uint32_t kLayoutVersion = 2;

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint32_t kEntryAlign = 16;
inline constexpr uint32_t kReplySlots = 256;
inline constexpr uint32_t kReplyInlineBytes = 1984;
inline constexpr uint32_t kReplyValues = 5;
inline constexpr uint32_t kCompletionWords = 65536;
inline constexpr uint32_t kNoSlot = 0xffffffff;

// Fixed addresses (H1, C1): device d has [kDeviceWindowBase + d TiB, +1 TiB). Linux puts nothing
// between 0x1600'0000'0000 and 0x2a00'0000'0000 by itself, however many bits of an address are
// random, and whatever the limit of the stack is; tests/address_maps.py has the rules. The thread
// sanitizer does: its shadow lies there.
#ifdef __SANITIZE_THREAD__
inline constexpr uint64_t kDeviceWindowBase = 0x7000'0000'0000;
#else
inline constexpr uint64_t kDeviceWindowBase = 0x1800'0000'0000;
#endif
inline constexpr uint64_t kDeviceWindowBytes = uint64_t{1} << 40;
// Physical memory is mapped there in multiples of it.
inline constexpr uint64_t kGranule = uint64_t{2} << 20;
// Device d: + d * kPinnedStride.
#ifdef __SANITIZE_THREAD__
inline constexpr uint64_t kPinnedWindowBase = 0x6f00'0000'0000;
#else
inline constexpr uint64_t kPinnedWindowBase = 0x16a0'0000'0000;
#endif
inline constexpr uint64_t kPinnedStride = uint64_t{64} << 30;

// Page 0 of `log`. Written by the client only.
struct LogHeader {
  uint32_t magic, version;
  uint64_t ring_offset, ring_bytes;  // in the memory object
  uint64_t object_log_offset, object_log_bytes;
  uint64_t arena_offset, arena_bytes;
  uint32_t client_pid, device;
  std::atomic<uint64_t> appended;         // position after the last complete entry
  std::atomic<uint64_t> committed;        // entries before it may be overwritten
  std::atomic<uint64_t> arena_head;       // position after the last reserved payload byte
  std::atomic<uint64_t> arena_committed;  // payload before it may be overwritten
  std::atomic<uint64_t> object_log_used;  // position after the last complete folded entry
  std::atomic<uint64_t> next_seq;         // sequence number of the next entry
  std::atomic<uint64_t> cuts;             // committed cuts so far
  // Entries from here to `appended` are whole; moved on before anything is written over.
  std::atomic<uint64_t> oldest;
  std::atomic<uint64_t> object_log_begin;  // position of the first folded entry that counts
  std::atomic<uint64_t> object_log_lost;   // entries that found no room: the job is unprotected
  std::atomic<uint64_t> entries_total;     // without pads
  std::atomic<uint64_t> forced_cuts;       // cuts made because the ring or arena was full
  std::atomic<uint64_t> local_calls;       // API calls the client answered itself
  std::atomic<uint64_t> space_waits;       // times the writer waited for the server
  // From this entry on device memory may change by what is in no log (CUDA IPC, managed memory), so
  // that no replay brings it back. 0: not so far.
  std::atomic<uint64_t> unreplayable_from;
  // Of the objects that live, those of which something found no room in the object log. While there
  // are any no other server can make all of them again.
  std::atomic<uint64_t> objects_missing;
};
static_assert(sizeof(LogHeader) <= kPageBytes);

enum class Mark : uint16_t {  // EntryHeader::call below kFirstCall
  kPad = 0,                   // skip to the start of the ring
  kAlloc = 1,                 // for readers of traces; payload struct AllocMark
  kFree = 2,                  // likewise
  kObserved = 3,              // a query or sync succeeded here: a later server waits until it holds
  kGate = 4,
  kCut = 5,
  kFence = 6,    // publish (word, value) when the stream reaches this point
  kGoodbye = 9,  // the client ends in good order; 7 and 8 were never written
};
inline constexpr uint16_t kFirstCall = 64;  // ids of API calls (proxy/api/*.toml: id)

enum EntryFlags : uint16_t {
  kWantsReply = 1,       // the server answers in `reply_slot`
  kHasPayload = 2,       // payload_position/payload_bytes name bytes in the arena
  kCreates = 4,          // goes to the object log at commit (replay class create or configure)
  kDestroys = 8,         // ends an object
  kFoldedDead = 16,      // in the object log only: superseded or destroyed
  kStreamCaptured = 32,  // part of a stream capture
  kProfiled = 64,        // a profiler of the client wants to see what the device does for it
  kRefused = 128,        // set by the client later: the server has answered that it made nothing
};

// Precedes every entry of ring and object log. `size` is a multiple of kEntryAlign and includes the
// header; the body (a generated cmd struct plus its variable part) follows.
struct EntryHeader {
  uint32_t size;
  uint16_t call;  // Mark or API call id
  uint16_t flags;
  uint64_t seq;               // 1, 2, 3 … in the total order over the client's threads
  uint32_t thread;            // client thread index, for the trace
  uint32_t reply_slot;        // kNoSlot if none
  uint64_t payload_position;  // arena position (ring) or byte offset in the object log
  uint64_t payload_bytes;
  uint64_t time_ns;  // CLOCK_MONOTONIC at append, for the trace and for figures
};
static_assert(sizeof(EntryHeader) == 48 && std::is_trivially_copyable_v<EntryHeader>);

// One per client thread that waits. The client bumps nothing here; the server fills code, values,
// bytes, then stores `done_seq` (release) and wakes `futex`.
struct alignas(64) ReplySlot {
  std::atomic<uint64_t> done_seq;  // seq of the entry answered last
  std::atomic<uint32_t> futex;     // changes with every answer
  int32_t code;                    // the API's own result code
  uint32_t bytes;                  // used part of data
  std::atomic<uint32_t> waiters;   // client: threads asleep on `futex`; none = no wake-up call
  uint64_t values[kReplyValues];
  uint8_t data[kReplyInlineBytes];
};
static_assert(sizeof(ReplySlot) == 2048);

// One per stream and per event (index = the handle's index). Written by the device side only.
struct alignas(32) CompletionWord {
  std::atomic<uint64_t> value;    // highest published value; grows
  std::atomic<uint64_t> time_ns;  // CLOCK_MONOTONIC when `value` was published
  std::atomic<uint32_t> futex;    // changes with every publication
  std::atomic<uint32_t> waiters;  // client: threads asleep on `futex`
  uint32_t reserved[2];
};
static_assert(sizeof(CompletionWord) == 32);

enum class ChannelStatus : uint32_t {
  kStarting = 0,
  kServing = 1,     // set by the server after attach
  kServerDead = 2,  // set by the agent after it has confirmed the server's death
  kAgentEnding = 3,
  kClientGone = 4,
  kRecovering = 5,  // the server is dead, another one takes over: the client only waits
};

// What is kept outside the fault domain of the device (pyft run --protect).
enum class Protect : uint32_t {
  kNone = 0,      // a cut commits at once; a dead server is the client's error
  kSnapshot = 1,  // a cut commits when its snapshot is in the store
};

// Start of `control`. Cache lines are separated by writer.
struct ControlPage {
  uint32_t magic, version;
  uint64_t reply_offset, completion_offset;  // byte offsets in `control`
  uint32_t epoch, server_pid;
  std::atomic<uint32_t> status;  // ChannelStatus
  std::atomic<uint32_t> status_futex;
  char status_text[256];                       // why, one sentence, NUL-terminated
  alignas(64) std::atomic<uint64_t> consumed;  // server: ring position dispatched up to
  std::atomic<uint32_t> consumed_futex;
  std::atomic<int32_t> sticky_error;           // cudaError_t, 0 = none; set by the server
  std::atomic<uint64_t> heartbeat_ns;          // server's heartbeat thread
  std::atomic<uint64_t> dispatching_seq;       // entry being executed by the dispatch thread
  alignas(64) std::atomic<uint32_t> doorbell;  // client bumps when the server may sleep
  std::atomic<uint32_t> server_sleeping;       // ServerSleep (wait.h)
  alignas(64) uint8_t reserved_bounce[20];
  std::atomic<uint32_t> consumed_waiters;  // client: threads asleep on consumed_futex
  // ---- recovery (docs/concepts/) -------------------------------------------------------------
  alignas(64) std::atomic<uint32_t> protect;  // agent: Protect, before anyone attaches
  std::atomic<uint32_t> decided_futex;        // server: changes with every decided cut
  std::atomic<uint64_t> snapshot_cut;         // server: number of the last cut in the store
  std::atomic<uint64_t> decided_cut;          // server: snapshotted or cancelled up to this number
  std::atomic<uint32_t> decided_waiters;      // client: threads asleep on decided_futex
  // The server's last words when the device fails; it ends with exit code kFaultExit after them.
  // The agent goes by those that it has got by its socket (api/wire/messages.toml).
  std::atomic<uint32_t> fault_kind;  // FaultKind
  std::atomic<int32_t> fault_code;   // of the API that reported it
  uint32_t reserved0;
  std::atomic<uint64_t> fault_seq;  // entry being dispatched then
  char fault_text[208];
  alignas(64) std::atomic<uint32_t> phase;  // server: Phase
  std::atomic<uint32_t> replay_mode;        // agent, before it starts the server: ReplayMode
  std::atomic<uint64_t> phase_ns[8];        // server: CLOCK_MONOTONIC at which the phase began
  std::atomic<uint64_t> restored_bytes, restored_blocks;
  std::atomic<uint64_t> replayed_entries;  // by the present server
  std::atomic<uint64_t> compared;          // values compared with what was handed out before
  std::atomic<uint64_t> differed;          // of these, how many were not equal
  std::atomic<uint64_t> differed_seq;      // first entry that differed, 0 = none
  std::atomic<uint64_t> unprotected;       // cuts that freed the log without a snapshot
  // ---- host functions in streams (server/session/callbacks.h): the client runs one at a time ----
  alignas(64) std::atomic<uint64_t> callback_asked;  // server: counts what it has asked for
  std::atomic<uint64_t> callback_id;                 // server, before it counts: which function
  std::atomic<uint64_t> callback_run;  // which run of it, from 1: more than one only in graphs
  std::atomic<uint32_t> callback_asked_futex;
  std::atomic<uint32_t> callback_asked_waiters;  // client: threads asleep on callback_asked_futex
  alignas(64) std::atomic<uint64_t> callback_done;  // client: what was asked for up to here has run
  std::atomic<uint32_t> callback_done_futex;
  std::atomic<uint32_t> callback_done_waiters;  // server: threads asleep on callback_done_futex
  // ---- server's heartbeat: what the device does, to be seen whether it is stuck -----------------
  alignas(64) std::atomic<uint64_t> device_progress;  // changes with each finished work; 0: unknown
  std::atomic<uint32_t> fences_open;                  // given to the device, not reached yet
  std::atomic<uint32_t> collectives_waiting;          // operations that stand still for other ranks
  // ---- snapshots -------------------------------------------------------------------------------
  std::atomic<uint64_t> cut_every;  // server: each K-th cut is snapshotted; 0: not known
  // Server: a command that nothing waits for has failed, and the device works on; 0 = none. The
  // client takes it away and returns it once.
  std::atomic<int32_t> late_error;
  // Server: modules it had loaded before it took over, and has not loaded again.
  std::atomic<uint32_t> ready_modules;
  std::atomic<uint64_t> peer_bytes;  // server: of restored_bytes, what other GPUs had
  // Server's heartbeat: changes while snapshots and restores copy or hash.
  std::atomic<uint64_t> passed_bytes;
  // ---- agent: recoveries of any rank of the job, for the program's own deadlines ----------------
  std::atomic<uint64_t> paused_ns;       // what those have taken that are over
  std::atomic<uint64_t> paused_since;    // CLOCK_MONOTONIC at which this one began; 0: none
  std::atomic<uint32_t> pauses_version;  // odd while the agent writes the two
  // ---- which rank the client is, where its environment does not say so --------------------------
  std::atomic<uint64_t> communicator;  // client: rank in the largest one it has made, size << 32
  std::atomic<uint32_t> rank;          // agent: its number in messages and orders
  // Client: what it has shared with other processes (CUDA IPC), whose doings are in no log. Shared.
  std::atomic<uint32_t> shared;
  // ---- faults on request (pyft/recovery/requests.py) -------------------------------------------
  alignas(64) uint8_t reserved3[64];  // `fault_notes` is at the end
  // A server that looks for a place by itself: cuts it has seen, entries after the last of them,
  // entries that followed the cut it was asked for.
  std::atomic<uint64_t> kill_cuts, kill_entries, kill_step_entries;
  // Server: changes when something that is kept from one snapshot to the next fills its room, or
  // has filled it. The client makes a cut wherever it is.
  std::atomic<uint32_t> cuts_wanted;
  // Server: hash of what the user was told last about a failed device; 0: nothing. A server that
  // takes over meets an error of the program again, and says it no second time.
  std::atomic<uint32_t> said_error;
  // Server: first entry whose replay lacks what it read from the client, until a snapshot has been
  // made behind it; 0: none.
  std::atomic<uint64_t> journal_lost;
  // Server: values of which two replays agree that the program was told something else; the first.
  std::atomic<uint64_t> corrected;
  char corrected_text[208];
  // ---- holds: the program stands still behind a cut (docs/concepts/recovery-line.md) -----------
  // Agent: the step behind whose cut the client waits, 0: none; at most until then
  // (CLOCK_MONOTONIC); and a word that changes with either.
  alignas(64) std::atomic<uint64_t> hold_step;
  std::atomic<uint64_t> hold_until_ns;
  std::atomic<uint32_t> hold_futex;
  uint32_t reserved2;
  // Client: its steps so far; the step behind whose cut it waits now, 0: it does not; the number of
  // that cut, the ring position after it, since when it waits, and when it last went on.
  alignas(64) std::atomic<uint64_t> steps;
  std::atomic<uint64_t> held_step, held_cut, held_position, held_ns, went_on_ns;
  // ---- dual modular redundancy (docs/concepts/redundancy.md), server ---------------------------
  // Products executed and looked at, pairs of equal inputs among them, pairs that differ; their
  // operations; products that are not looked at since their sets are not known, since a stream
  // captures, or since too many were remembered; what the digests took.
  alignas(64) std::atomic<uint64_t> dmr_products, dmr_pairs, dmr_mismatches;
  std::atomic<uint64_t> dmr_flops, dmr_pair_flops;
  std::atomic<uint64_t> dmr_opaque, dmr_captured, dmr_forgotten, dmr_digest_ns;
  // ---- faults on request: which of them have happened -----------------------------------------
  // Server, soft GPU: 1 when the request of this number has come to pass; the agent clears it.
  alignas(64) std::atomic<uint8_t> fault_notes[256];
  // ---- audits (docs/concepts/audit.md), agent --------------------------------------------------
  // Intervals between snapshots that were audited, their entries, bytes that were compared, and
  // blocks that were not since parts of them need not have been written; what was found: ranks that
  // were wrong, auditors that were, replays that agree with none.
  std::atomic<uint64_t> audits, audit_entries, audit_bytes, audit_fresh;
  std::atomic<uint64_t> audit_ranks, audit_auditors, audit_undecided;
  // Entries that were not audited: before the first snapshot, since the log was full, without a GPU
  // for it, since the audit failed, since none agreed, since results of collectives were not
  // kept.
  std::atomic<uint64_t> unaudited_first, unaudited_log, unaudited_spare, unaudited_failed;
  std::atomic<uint64_t> unaudited_undecided, unaudited_collectives;
  // What is appended above takes its room from here: what lies behind does not move.
  alignas(64) uint8_t reserved4[896];
  // ---- second executions (docs/concepts/second-executions.md), server --------------------------
  // Products that the server has executed again, and compared; those that were executed twice by
  // it or by the program, and their operations.
  std::atomic<uint64_t> dmr_again, dmr_covered, dmr_covered_flops;
  // Products that were not: their inputs had changed, there was no memory, their turn comes later,
  // the library refuses. Launches that are no products.
  std::atomic<uint64_t> dmr_expired, dmr_no_room, dmr_later, dmr_refused, dmr_kernels;
  // What second executions took at the program's cost, and while it waited; how long it waited.
  std::atomic<uint64_t> dmr_again_ns, dmr_window_again_ns, dmr_window_ns;
  std::atomic<uint64_t> dmr_period;  // in so many intervals all were covered once
};
static_assert(std::atomic<uint8_t>::is_always_lock_free && sizeof(std::atomic<uint8_t>) == 1);
static_assert(sizeof(ControlPage) <= kPageBytes);

enum Shared : uint32_t {
  kImports = 1,  // the client has opened memory of other processes
  kExports = 2,  // it has given handles of its own memory to others
};

// Exit codes of a server.
inline constexpr int kAttachExit = 70;         // its own memory, or that of the client
inline constexpr int kBackendExit = 71;        // the device, or the library for it
inline constexpr int kProtocolExit = 72;       // the client has written what no client writes
inline constexpr int kStoreExit = 73;          // the store is not usable
inline constexpr int kFaultExit = 75;          // the device failed: fault_* says how
inline constexpr int kUnrecoverableExit = 76;  // fault_text says what is missing
inline constexpr int kDivergedExit = 77;       // replay differed from what was handed out
inline constexpr int kSelfTestExit = 78;       // the GPU of a new server failed its test
// The others have not let a new server into a communicator: they have changed meanwhile, or another
// one has died, so the next attempt may go better.
inline constexpr int kNoPlaceExit = 79;
inline constexpr int kMismatchExit = 80;        // two executions differ, and no other process knows
inline constexpr int kMismatchSpreadExit = 81;  // likewise, and others may have what is wrong

enum class FaultKind : uint32_t {
  kNone = 0,
  kDevice = 1,         // sticky error: the context is lost
  kUnrecoverable = 2,  // nothing to restore from
  kDiverged = 3,
  kUndecided = 4,       // likewise, and another replay entry by entry has to tell which is right
  kMismatch = 5,        // two executions with the same inputs have given different bits
  kMismatchSpread = 6,  // likewise, and other ranks may have been given what is wrong
};

enum class Phase : uint32_t {
  kLive = 0,
  kStarting = 1,  // attached, device being made
  kObjects = 2,   // object log
  kRestore = 3,   // contents of device memory
  kCommunicators = 4,
  kReplay = 5,
};

enum class ReplayMode : uint32_t {
  kNormal = 0,
  kSerial = 1,   // waits for the device after each entry: an error belongs to its entry
  kDeliver = 2,  // errors of the device go to the client: they are the program's own
};

// After the completion words: how often the client called each exported function, by the index of
// api/call_ids.h. Written by the client at cuts and at its end, for `pyft coverage`.
inline constexpr uint32_t kCallCounters = 4096;

inline constexpr uint64_t kCallCountersOffset =
    kPageBytes + kReplySlots * sizeof(ReplySlot) + kCompletionWords * sizeof(CompletionWord);
inline constexpr uint64_t kControlBytes = kCallCountersOffset + kCallCounters * sizeof(uint64_t);

static_assert(std::atomic<uint64_t>::is_always_lock_free);

// ---- bodies of marks -------------------------------------------------------------------------
struct AllocMark {
  uint64_t address, requested_bytes;
};  // kAlloc, kFree
struct ObservedMark {
  uint32_t word, kind;
  uint64_t value;
};  // kObserved: 0 stream 1 event 2 device
struct FenceMark {
  uint64_t stream;
  uint32_t word, reserved;
  uint64_t value;
};
// The payload, if there is one, says what is live: CutScope.
struct CutMark {
  uint64_t number;
  uint64_t arena_head;
  uint64_t object_log_used;
  uint8_t forced;       // made because the log was full
  uint8_t passed_over;  // not to be snapshotted: the client has not found out what is live
  uint16_t scope_us;    // processor time that this took the client, no more than fits
  uint32_t step;        // cuts that are not forced so far: the same in all ranks of a program
};
// Payload of a cut: `pools` ranges of memory that an allocator hands out in blocks, then the
// `blocks` that are in use; both AllocMark. What lies in a pool but in no block is not live.
// Mapped memory outside the pools is live as a whole, as is everything when there is no payload.
// A number for each block may follow, in the same order: ManifestBlock::since.
struct CutScope {
  uint64_t pools, blocks;
};
struct GateMark {
  uint64_t cut_number;
};

}  // namespace pyft::ring

#endif  // PYFT_RING_LAYOUT_H_
