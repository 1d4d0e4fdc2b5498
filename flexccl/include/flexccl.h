// NCCL's C API (types and values of NCCL 2.28) plus calls that repair a communicator and calls for
// the program flexccl is embedded in. A test compiles this header and nccl.h and compares them.
//
// Threads: any thread may call anything; calls on one communicator come from one thread at a time,
// as in NCCL. Buffers are memory of the calling process. A collective returns when it is queued;
// flexcclSynchronize() says when its result is there.
#ifndef FLEXCCL_H_
#define FLEXCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLEXCCL_API __attribute__((visibility("default")))

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION_CODE 22809

typedef struct CUstream_st* cudaStream_t;
typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

// Read: `size`, `magic`. The rest tunes GPUs and has no effect here.
typedef struct ncclConfig_v22800 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
} ncclSimInfo_t;

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

// ---- What NCCL has, with its meaning ----

FLEXCCL_API ncclResult_t ncclMemAlloc(void** ptr, size_t size);
FLEXCCL_API ncclResult_t ncclMemFree(void* ptr);
// The version of the API that is implemented: NCCL_VERSION_CODE.
FLEXCCL_API ncclResult_t ncclGetVersion(int* version);
FLEXCCL_API const char* ncclGetErrorString(ncclResult_t result);
// The sentence of the last error: of `comm`, or of this thread when `comm` is NULL or has none.
FLEXCCL_API const char* ncclGetLastError(ncclComm_t comm);

FLEXCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
FLEXCCL_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId,
                                          int rank);
FLEXCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId,
                                                int rank, ncclConfig_t* config);
// All ranks meet at the first of the ids.
FLEXCCL_API ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank,
                                                  int nId, ncclUniqueId* commIds,
                                                  ncclConfig_t* config);
FLEXCCL_API ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
FLEXCCL_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                                       ncclConfig_t* config);
// Local: no message is sent. Survivors must pass the same list.
FLEXCCL_API ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList,
                                        int excludeRanksCount, ncclComm_t* newcomm,
                                        ncclConfig_t* config, int shrinkFlags);
// Waits for the queued operations; at most the deadline of each.
FLEXCCL_API ncclResult_t ncclCommFinalize(ncclComm_t comm);
FLEXCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm);
// Ends running operations at once. Peers that wait for this rank get ncclRemoteError. A stream with
// an operation that has failed stands still until now, as NCCL's do: it has no result.
FLEXCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm);
// Never waits. The first error of a communicator stays.
FLEXCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
FLEXCCL_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
FLEXCCL_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
// Registration has no effect: buffers are plain memory.
FLEXCCL_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size,
                                          void** handle);
FLEXCCL_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);

FLEXCCL_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                                  ncclDataType_t datatype,
                                                  ncclScalarResidence_t residence, ncclComm_t comm);
FLEXCCL_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

FLEXCCL_API ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, ncclRedOp_t op, int root,
                                    ncclComm_t comm, cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       ncclDataType_t datatype, ncclComm_t comm,
                                       cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                                   ncclComm_t comm, cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, int root, ncclComm_t comm,
                                       cudaStream_t stream);
// In place (sendbuff == recvbuff) is refused, as NCCL's documentation rules it out.
FLEXCCL_API ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                      ncclDataType_t datatype, ncclComm_t comm,
                                      cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, int root, ncclComm_t comm,
                                    cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                                     ncclDataType_t datatype, int root, ncclComm_t comm,
                                     cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype,
                                  int peer, ncclComm_t comm, cudaStream_t stream);
FLEXCCL_API ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream);

// Of one communicator's calls in a group, collectives run first, in order, then all sends and
// receives at once. Initialisations in a group run at the same time, at its end.
#ifdef __cplusplus
FLEXCCL_API ncclResult_t ncclGroupStart();
FLEXCCL_API ncclResult_t ncclGroupEnd();
#else
FLEXCCL_API ncclResult_t ncclGroupStart(void);
FLEXCCL_API ncclResult_t ncclGroupEnd(void);
#endif

// ---- Exported because PyTorch links to them; always ncclInvalidUsage ----

struct ncclDevCommRequirements;
struct ncclDevComm;
FLEXCCL_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size,
                                                ncclWindow_t* win, int winFlags);
FLEXCCL_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
FLEXCCL_API ncclResult_t ncclDevCommCreate(ncclComm_t comm,
                                           const struct ncclDevCommRequirements* requirements,
                                           struct ncclDevComm* devComm);
FLEXCCL_API ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const struct ncclDevComm* devComm);
FLEXCCL_API ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

// ---- Repair: a communicator outlives its ranks ----
//
// A communicator has slots; a rank's number is its slot, and ring positions follow the order of the
// slots. Every repair is one step of the communicator's epoch. What runs the job (a control
// thread or an agent; the calls may come while another thread is inside a collective)
//   replace:  1. ncclCommExportInfo at any live rank      2. ncclInitNewNode in the new process
//             3. ncclReplaceNode at every survivor        4. ncclCommSetupNewRank in the new
//             process
//   add:      the same with a free slot and ncclAddNode   remove: ncclRemoveNode at every survivor
// Only the export and the fan-out of the calls is the caller's. None of these calls speaks to more
// than two ranks, so none takes longer with more ranks. Links between survivors stay open.
//
// The new rank and its neighbours, the nearest live rank on each side of its slot, decide together:
// they agree by ncclReplaceNode or ncclAddNode, the new rank decides in ncclCommSetupNewRank, by
// one store that all ranks of the host see, and one message to another host. Until then each rank
// is on the old epoch, whichever dies; from then on the new one holds, and a rank that does not
// know of it finds out with its next operation at the latest. So a *replacement* must be announced
// to the two neighbours only; other survivors may be told, and then their next operation waits for
// the decision. Without flexcclSetRepair the others must be told too, or begin no operation until
// ncclCommSetupNewRank has returned: an operation that runs is not interrupted there.
//
// When the new rank or another one dies before the decision, nothing has happened: begin again, at
// step 1 if the new rank is gone, else with ncclCommSetupNewRank. Calling anything once more where
// it succeeded does nothing. Export from a survivor with the highest epoch (flexcclGetState): the
// newest info carries the steps before it, so no rank has to catch up. One repair at a time: of two
// for the same epoch one is refused. Frames and links of an old epoch are dropped where they
// arrive, and a rank that was replaced though it lives is told so by its next operation. The infos
// hold the key of the job: keep them as secret as the unique id.
//
// An operation that a dead rank interrupts is an error, unless flexcclSetRepair was on when the
// communicator was made: then it waits for the repair and is finished, with the bits that it would
// have had. Nothing changes for operations that are done.

#define FLEXCCL_INFO_BYTES 4096
typedef struct {
  char internal[FLEXCCL_INFO_BYTES];
} flexcclInfo_t;

// What a new process needs in order to take part as `slot`: communicator, epoch, members, the
// addresses of a few of them. Any live rank calls it; local, unless the rank is itself new and
// still has to ask for an address.
FLEXCCL_API ncclResult_t ncclCommExportInfo(ncclComm_t comm, int slot, flexcclInfo_t* info);
// The new process calls it: listens, and fills `info` with its own address for the survivors.
// Local. The communicator becomes usable with ncclCommSetupNewRank.
FLEXCCL_API ncclResult_t ncclInitNewNode(ncclComm_t* comm, const flexcclInfo_t* exported, int slot,
                                         flexcclInfo_t* info);
// The two neighbours call it, other survivors may. Rank numbers and N stay. Returns when this rank
// has agreed; a neighbour first makes sure that the new process answers (within the deadline).
// Where it was decided already, it returns when the epoch is taken, at the latest when a running
// operation looks up.
FLEXCCL_API ncclResult_t ncclReplaceNode(ncclComm_t comm, int slot, const flexcclInfo_t* newNode);
// Every rank calls it, between the same two operations: the new rank takes its slot, N grows by
// one. Returns when the operations queued before it are done; the next one waits for the decision.
FLEXCCL_API ncclResult_t ncclAddNode(ncclComm_t comm, const flexcclInfo_t* newNode);
// Every survivor calls it; the first call decides. N shrinks by one, the slot is free. The others
// keep their numbers: with slot 1 of 3 removed there are ranks 0 and 2; blocks of gathered buffers
// lie in the order of the slots. An operation that the removed rank interrupted is redone without
// it, unless some rank has its result. One with a block per rank in its buffers cannot be: on every
// rank that has not completed it, it ends with ncclInvalidUsage, for good; ncclCommShrink of the
// removed slot makes the smaller communicator. With nothing interrupted: between the same two
// operations, as ncclAddNode.
FLEXCCL_API ncclResult_t ncclRemoveNode(ncclComm_t comm, int slot);
// The new process calls it last: blocks until both neighbours have agreed, at most the deadline,
// and decides. A neighbour that cannot be reached is passed over. It may be repeated.
FLEXCCL_API ncclResult_t ncclCommSetupNewRank(ncclComm_t comm);

typedef struct {
  size_t size;  // set by the caller: sizeof(flexcclState_t)
  uint32_t epoch;
  int slot, slots, nranks;
  int position;            // in the ring: the number of live slots before this one
  int paused;              // 1: an operation waits for a repair,
  int suspect;             // of this slot, as far as this rank can tell; -1: none
  uint64_t entered;        // collectives that were begun here,
  uint64_t done;           // are complete here,
  uint64_t all_done;       // are known to be complete everywhere
  uint64_t operation;      // complete here, batches of sends and receives included
  uint64_t kept_bytes;     // inputs and outputs that a rank may still need
  uint64_t record_bytes;   // in use in the memory of flexcclSetRecords,
  uint64_t record_budget;  // of these
  uint64_t committed;      // operations whose records are gone for good
  int recorded;            // 1: every operation after `committed` has its record; 0: one has not
  int replaying;           // 1: operations are answered from the records of a predecessor
  uint64_t diverged;       // operations that were repeated with other inputs than before
  uint64_t comm;           // the communicator's number, the same at all ranks
  uint64_t content_bytes;  // in use in the host's content store, by any rank,
  uint64_t content_room;   // of these
  uint64_t owed;  // the first operation that another rank may not have completed, and needs
                  // this process for: its replay from a later one lacks that; 0: none
} flexcclState_t;
// Any thread; never waits.
FLEXCCL_API ncclResult_t flexcclGetState(ncclComm_t comm, flexcclState_t* state);
// Lets a thread of the library ask the other ranks soon what they have completed, which otherwise
// the frames of later operations tell: it shows in `all_done`, `kept_bytes` and `owed`. Any thread;
// never waits.
FLEXCCL_API ncclResult_t flexcclAskAround(ncclComm_t comm);
// Free slots that communicators made from now on have beside those of their ranks
// (FLEXCCL_RESERVED_SLOTS; 0).
FLEXCCL_API ncclResult_t flexcclSetReservedSlots(int slots);
// Communicators made from now on keep what a redo needs, and an operation whose peer is gone waits
// so long for a repair (FLEXCCL_REPAIR_MS; 0: off, a peer that is gone is an error at once).
FLEXCCL_API ncclResult_t flexcclSetRepair(uint64_t wait_ms);

// ---- Records: what a process leaves behind for the one that takes its place ----
//
// flexccl/README.md ("Records and replay across processes") has the calls in their order.

// What a region of records begins with; `magic` is 0 until anything is recorded. Each field is
// whole at any instant; they may be read from any process. README.md explains them.
#define FLEXCCL_REGION_MAGIC 0x32736472656c6663ULL  // "cflerds2"
typedef struct {
  uint64_t magic, bytes;
  uint64_t comm, parent;
  uint32_t slot, slots;
  uint32_t epoch, closed;
  uint64_t entered, done;
  uint64_t entered_collectives, done_collectives;
  uint64_t committed, unrecorded;
  uint64_t diverged, diverged_operation;
  uint64_t used_bytes, budget_bytes;
  char process[16];
} flexcclRegion_t;

// From the next operation on, what a replay of this rank needs is written to `base`, memory of the
// caller that may outlive this process (mapped from a file or a memfd) and has to stay mapped as
// long as the communicator. It is as secret as the unique id. Each operation is published by one
// store after its bytes are there, so that the memory is whole at any instant. When it is full, the
// communicator goes on *unrecorded*, says so on stderr, and records again after the next commit.
// No effect with the memory in which the communicator has its records already.
FLEXCCL_API ncclResult_t flexcclSetRecords(ncclComm_t comm, void* base, size_t bytes);
// Memory that the processes of a host share, zeros at first: outputs that all ranks have are stored
// there once, for all communicators of this process. `holder`, 0 to 63, is this process's number on
// the host; a process that takes its place has the same. Before the first record; for good.
FLEXCCL_API ncclResult_t flexcclSetContents(void* base, size_t bytes, int holder);
// Frees the records of the first `operation` operations: this rank never replays them again.
FLEXCCL_API ncclResult_t flexcclCommitted(ncclComm_t comm, uint64_t operation);
// For a new rank, between ncclInitNewNode and ncclCommSetupNewRank: it repeats the operations after
// the first `operation`. With the records of its predecessor at `base`, those that the predecessor
// had completed are answered from there, and new records follow; memory of zeros is a predecessor
// that had done nothing. Without (base NULL, bytes 0) the others must still keep what is needed.
// Without this call a new rank starts where the rank was that exported the info.
FLEXCCL_API ncclResult_t flexcclReplay(ncclComm_t comm, void* base, size_t bytes,
                                       uint64_t operation);
// Makes the communicator again whose records lie at `base`, and replays as above, when no other
// rank has it: its other ranks have destroyed it, or have died as well. Those can then be replaced
// from here, as at any live rank. Local.
FLEXCCL_API ncclResult_t flexcclAdopt(ncclComm_t* comm, void* base, size_t bytes,
                                      uint64_t operation);
// For records that no process will replay and whose communicator was destroyed: releases what they
// hold in the content store. The region is empty afterwards.
FLEXCCL_API ncclResult_t flexcclForget(void* base, size_t bytes);
// The communicator with this number in this process. ncclInvalidUsage: it was here and is
// destroyed; ncclInvalidArgument: it never was, or is not yet.
FLEXCCL_API ncclResult_t flexcclFind(uint64_t number, ncclComm_t* comm);
// ncclReplaceNode of the communicator with this number. When this process has none, because it is
// still about to split it or to shrink it from another one: as soon as it has.
FLEXCCL_API ncclResult_t flexcclReplaceLater(uint64_t number, int slot,
                                             const flexcclInfo_t* newNode);
// The program of rank `slot` of the communicator with this number has ended, and so has its process
// here: no rank takes its place any more. What it has sent, and what others have of it, still
// counts; whatever needs more of it ends with ncclRemoteError, and waits for no repair: operations
// that run or come later, and calls that make the communicator or one of its parts. It may be said
// before the communicator is made here. `slot` -1: the maker of the unique id, which matters only
// to those that are on the way to meet there. Any thread; never waits.
FLEXCCL_API ncclResult_t flexcclRankLeft(uint64_t number, int slot);
// The number of the communicator that is made with this id.
FLEXCCL_API ncclResult_t flexcclNumberOf(const ncclUniqueId* id, uint64_t* number);
// The communicators that were split or shrunk from `comm` in this process, are not destroyed, and
// have the rank `slot` of `comm` as a member. `count`: room in `list`, then how many there are.
typedef struct {
  uint64_t comm;
  int slot;  // of that rank, there
  int padding;
} flexcclChild_t;
FLEXCCL_API ncclResult_t flexcclChildren(ncclComm_t comm, int slot, flexcclChild_t* list,
                                         int* count);
// What the library says by itself, a line without its end; NULL: on stderr, with "flexccl: " before
// it. In any thread. Levels: 0 error, 1 warning, 2 info.
typedef void (*flexcclLog_t)(int level, const char* sentence);
FLEXCCL_API ncclResult_t flexcclSetLog(flexcclLog_t log);
// Told about each operation whose repetition had other inputs, by the thread that repeats it. NULL:
// none is.
typedef void (*flexcclDiverged_t)(uint64_t comm, uint64_t operation, const char* sentence);
FLEXCCL_API ncclResult_t flexcclSetDiverged(flexcclDiverged_t report);
// Told when communicator `number` is made from a unique id, before this rank goes to meet the
// others
// (`lost` 0; it returns 1 if a predecessor of this process may have been there), and then several
// times a second while it is not known whether they have met without it (`lost` 1): because of that
// predecessor, or the process that answered has died, or had done its part. Where they have, the
// embedding program gets this rank's place from one of them: ncclInitNewNode, flexcclReplay with
// NULL, ncclCommSetupNewRank; then it returns 1, and that is the communicator which the call makes.
// Called in the thread that makes it. NULL: nothing is told.
// The same for a communicator that is split or shrunk from another one, where ranks do not meet:
// told (`lost` 0) when the members are known and before their addresses are taken from the other
// one. If it returns 1, others may have made it with the predecessor's address, and it is asked
// several times a second (`lost` 2): 1 as above, 2 when none of the others has it, so that it is
// made.
typedef int (*flexcclMaking_t)(uint64_t number, int rank, int nranks, int lost);
FLEXCCL_API ncclResult_t flexcclSetMaking(flexcclMaking_t making);

// ---- For the program that embeds flexccl ----

// How to run a host function in stream order. `enqueue` returns 0, and then `run(arg)` is called
// exactly once, after everything that was put into `stream` before; it may block there. Operations
// of one communicator on several streams run in the order of the calls. Streams 0, 1 and 2 are
// those of `device`: the communicator's, which is the current one (`device`, NULL: 0) of the thread
// that made it, or the one that ncclCommInitAll was told.
typedef struct {
  int (*enqueue)(int device, cudaStream_t stream, void (*run)(void* arg), void* arg);
  int (*device)(void);
} flexcclStreamTable;
// For communicators made from now on; NULL: back to one worker thread per communicator.
FLEXCCL_API ncclResult_t flexcclSetStreamTable(const flexcclStreamTable* table);

// How the ranks of communicators made from now on reach each other. flexcclAuto takes loopback in
// one process, shared memory on one host, TCP otherwise; it never changes a result.
typedef enum {
  flexcclAuto = 0,
  flexcclLoopback = 1,
  flexcclShm = 2,
  flexcclTcp = 3
} flexcclTransport_t;
FLEXCCL_API ncclResult_t flexcclSetTransport(flexcclTransport_t transport);
// Longest time without any progress, per operation, of communicators made from now on.
FLEXCCL_API ncclResult_t flexcclSetTimeout(uint64_t timeout_ms);
// For tests: links made from now on lose, delay, damage or cut what passes, or kill their rank, as
// the rules say (flexccl/transport/fault.h has the syntax), and go on obeying later calls. NULL:
// links made from now on are unharmed. FLEXCCL_FAULT holds the rules at the start.
FLEXCCL_API ncclResult_t flexcclSetFault(const char* rules);
// Waits until everything queued on `comm` so far is done; returns its asynchronous error.
FLEXCCL_API ncclResult_t flexcclSynchronize(ncclComm_t comm);

#ifdef __cplusplus
}
#endif

#endif  // FLEXCCL_H_
