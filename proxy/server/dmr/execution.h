// One execution of a product by the program, and what its second one needs.
#ifndef PYFT_SERVER_DMR_EXECUTION_H_
#define PYFT_SERVER_DMR_EXECUTION_H_

#include <atomic>
#include <memory>
#include <vector>

#include "checkpoint/digest/digest.h"
#include "server/dmr/again.h"
#include "server/dmr/pairs.h"
#include "server/dmr/products.h"
#include "server/dmr/rotation.h"
#include "server/dmr/shadow.h"

namespace pyft::server::dmr {

// By the server, for the second time.
struct Second {
  enum class When {
    kNever,
    kNow,     // in its stream, behind the first
    kKept,    // what it reads is copied: until the cut
    kIfIdle,  // if the program waits, and what it reads is still there
  };
  When when = When::kNever;
  std::shared_ptr<const ShadowMemory::Piece> piece;  // where it reads copies and writes
  Places places;
  std::array<bool, 4> copied{};  // inputs that are read from copies
  std::atomic<bool> compared{false};
};

struct Execution {
  EntryHeader header{};
  std::vector<std::byte> body;  // kept for a second execution only
  Product product;
  uint64_t cut = 0, interval = 0;
  Rotation::Name name = 0;
  std::shared_ptr<Pairs> pairs;  // of its interval
  Second second;
  // Known when its stream has come there.
  Digest inputs{}, outputs{};
  uint64_t begun_ns = 0;
  std::atomic<bool> done{false};

  uint64_t seq() const { return header.seq; }
};

// Precondition: the range is mapped. `address`: where it lies, elsewhere than it says.
Digest digest_of(const Range& range, uint64_t address, checkpoint::DigestKey key);
Digest digest_of_inputs(const Product& product, const Places& at, checkpoint::DigestKey key);

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_EXECUTION_H_
