// Where a rank is reached, and the fixed-size messages with which a link is set up. Both travel
// between processes: fields are appended, never moved, and kWireVersion counts changes.
#ifndef FLEXCCL_TRANSPORT_ADDRESS_H_
#define FLEXCCL_TRANSPORT_ADDRESS_H_

#include <cstdint>

#include "base/key.h"

namespace flexccl {

inline constexpr std::uint32_t kMagic = 0x6c636366;  // "fccl"
inline constexpr std::uint32_t kWireVersion = 4;

struct Address {
  Bytes16 process;         // also the name of the process's abstract Unix socket
  std::uint64_t host;      // equal where shared memory works
  std::uint32_t ipv4;      // network order
  std::uint16_t port = 0;  // network order
  std::uint16_t padding = 0;
};
static_assert(sizeof(Address) == 32);

// kControl: no link, but one question and its answer (control.h).
enum class LinkKind : std::uint32_t { kShm = 1, kTcp = 2, kControl = 3 };

// In place of the version in a welcome: the destination has not reached the epoch of the hello yet.
// It is not signed: all it can bring about is another attempt.
inline constexpr std::uint32_t kComeAgain = 0xffffffff;

// The accepting side speaks first, so that each hello is bound to one connection.
struct Challenge {
  std::uint32_t magic, version;
  Bytes16 nonce;
};
static_assert(sizeof(Challenge) == 24);

struct Hello {
  std::uint32_t magic, version;
  std::uint64_t key;  // fingerprint
  std::uint64_t comm;
  std::uint32_t epoch, source, destination;
  LinkKind kind;
  Bytes16 nonce;
  Bytes16 mac;  // over the challenge's nonce and everything above
};
static_assert(sizeof(Hello) == 72);

struct Welcome {
  std::uint32_t magic, version;
  Bytes16 mac;  // over the hello's mac: the accepting side knows the key too
};
static_assert(sizeof(Welcome) == 24);

Bytes16 hello_mac(const Key& key, const Challenge& challenge, const Hello& hello);
Bytes16 welcome_mac(const Key& key, const Hello& hello);

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_ADDRESS_H_
