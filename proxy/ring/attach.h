// How a process gets its channels: one SOCK_SEQPACKET connection to the agent's abstract socket
// "\0$PYFT_AGENT" (no file to leave behind; the peer's uid is checked on both sides).
//
// Client: sends AttachRequest followed by its environment ("A=1\0B=2\0…") the first time a device
// is used; receives AttachReply with four descriptors (log, control, bounce, pinned). It keeps the
// connection open: its end tells the agent that the client is gone, and the agent's end tells the
// client that the agent is gone.
// Server: is started by the agent with PYFT_SERVER_FD=N, a connected seqpacket socket on which the
// agent has sent one AttachReply with the same four descriptors (log opened read-only) and a fifth,
// the store. `text` then changes its environment: lines NAME=VALUE, or a name that goes away. After
// that both sides send ServerMessages; so they do before, while a server stands by.
// pyft/agent/protocol.py is the Python side; tests/unit/test_protocol.py compares both.
#ifndef PYFT_RING_ATTACH_H_
#define PYFT_RING_ATTACH_H_

#include <cstdint>

namespace pyft::ring {

inline constexpr uint32_t kAttachMagic = 0x41544650;  // "PFTA"
inline constexpr uint32_t kAttachVersion = 2;
inline constexpr uint32_t kMaxEnvironmentBytes = 120 * 1024;  // longer ones are an error, named

struct AttachRequest {
  uint32_t magic, version;
  uint32_t pid, device;
  uint32_t environment_bytes, reserved;
};

struct AttachReply {
  uint32_t magic, version;
  int32_t error;  // 0, or an errno; then `text` says why and no descriptors come
  uint32_t device;
  uint32_t client_pid, server_pid, epoch, reserved;
  uint64_t log_bytes, control_bytes, bounce_bytes, pinned_bytes;
  uint64_t store_bytes;  // 0 for the client, which does not get it
  char text[256];
};
static_assert(sizeof(AttachRequest) == 24 && sizeof(AttachReply) == 328);

// Between agent and server, after the attach reply. `bytes` bytes of payload follow.
inline constexpr uint32_t kMessageMagic = 0x4d544650;  // "PFTM"
inline constexpr uint32_t kMaxMessagePayload = 60 * 1024;

enum class MessageKind : uint32_t {
  // server to agent
  kLive = 1,  // replay is over, or there was none
  // a communicator is made again: a = key, b = rank, c = kFromRecords; answered by kExport.
  // c = kLostMeeting, said again and again: this rank is still making it, for the first time or
  // again, and the others may have met without it; answered when a living one has it.
  // c = kDividing, likewise: it is split from another one, which takes no meeting; answered as for
  // kFromRecords, too, when nobody has it
  kWantExport = 2,
  kFresh = 3,     // a = key, b = rank, payload: flexcclInfo_t for every other member
  kExported = 4,  // answer to kDoExport: a = key, b = rank, c = ncclResult_t, payload: info
  kReplaced = 5,  // answer to kDoReplace: a = key, b = rank, c = ncclResult_t
  kMade = 6,      // a = key, b = rank, c = size: a communicator exists here now
  kEnded = 7,     // a = key, b = rank
  kSuspect = 8,   // a = key, b = rank whose connections are broken, c = own rank
  // a = step of a cut, b = offset of its table in the store, c = its entry; b 0: passed over
  kCaptured = 9,
  // a = key, b = rank: under which id is it made? With payload: this one was made
  kWantId = 11,
  // a = key, b = rank, c = collectives up to the next kHeld; payload: per other rank its rank,
  // messages sent to it, received from it (uint64_t each)
  kLine = 12,
  // a = step of a cut, b = 1: it waits in the store, whole, c = its entry; b 0: passed over
  kHeld = 13,
  // a = id of a member, b: another one will do, so many have been looked at; answered by kStore
  kWantStore = 14,
  // a = step of a cut that is held, and must not wait any longer; answered by kSettled or kDropped
  kWithdraw = 15,
  kShort = 16,    // a = number: the device has no memory for the program; answered by kRoom
  kGivenUp = 17,  // answer to kGiveUp
  kSpilled = 18,  // answer to kSpill: a = its number, b = blocks that are missing
  kMaking = 19,   // a = key, b = rank, c = size: it goes to meet the others of a communicator
  // a: so many have been asked. A living replica's server, to copy from its GPU; answered by kPeer
  kWantPeer = 20,
  // a = key, b = rank: the communicator has failed here for good: it takes no part any more
  kBroken = 21,
  kMinted = 22,  // a = key: the unique id of a communicator has been made here
  kPace = 24,    // a = K: what lies between two captures must not be more cuts, or finds no room
  // The server's last words, before it ends: a = FaultKind, b = code of the API that reported it,
  // c = entry being dispatched; payload: a sentence. What the control page says of it is for
  // display: the client can write there
  kFault = 30,
  // agent to server
  kDoExport = 101,   // a = key, b = rank to be replaced
  kDoReplace = 102,  // a = key, b = rank, payload: info of the new one
  kExport = 103,     // a = key, b = rank, c = ncclResult_t, payload: info
  kJoin = 104,       // a = key: every member has replaced; c = ncclResult_t
  kInject = 105,     // payload: a fault in the soft GPU's own words
  // a = step of a cut: it is compared; b = 1: and is to become the recovery point
  kSettled = 106,
  kMadeAs = 107,   // a = key, payload: ncclUniqueId; none: make one
  kDropped = 108,  // a = step: its cut fits no cut of the other ranks, and is given up
  kStore = 109,    // a, b as in kWantStore; with a descriptor: a store
  // To a server that stands by. a = id of a member; with a descriptor, its log, read-only, whose
  // modules it may need; without one the member has ended
  kModules = 110,
  kGiveUp = 111,  // the memory of modules that it has loaded for others, for good
  kRoom = 112,    // a = number, b = 1: other servers have given memory back
  // a = number, b = step of a point: what it leaves to other ranks is to go to the store, for them
  kSpill = 113,
  kPeer = 114,  // a as in kWantPeer; with a descriptor: a connection to that server
  kLend = 115,  // with a descriptor: a connection to a new server, which asks for memory
  // a = key, b = rank of a communicator: its program has ended, and its server: nobody comes in its
  // place. b = kMinter: who has made the unique id
  kLeft = 116,
  kPaceOfOthers = 118,  // a = K of another rank that has to hold the same cuts
  // Between two servers (server/recovery/peer_memory.h). a = offset in the program's window
  kWantMemory = 201,
  // a, b = the mapping that has it: where it begins, how many bytes; c = 0, or the CUresult that
  // says why not. With its descriptor
  kMemory = 202,
};

inline constexpr uint64_t kMinter = UINT64_MAX;                               // b of kLeft
inline constexpr uint64_t kFromRecords = 0, kLostMeeting = 1, kDividing = 2;  // c of kWantExport

struct ServerMessage {
  uint32_t magic, kind;  // MessageKind
  uint64_t a, b, c;
  uint32_t bytes, reserved;
};
static_assert(sizeof(ServerMessage) == 40);

}  // namespace pyft::ring

#endif  // PYFT_RING_ATTACH_H_
