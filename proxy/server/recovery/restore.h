// Puts a fresh device into the state of a recovery point: objects first, in the order in which the
// program made them, then contents. docs/recovery.md.
//
// Nothing in the store or the log is changed, so a restore that is cut short can begin again.
#ifndef PYFT_SERVER_RECOVERY_RESTORE_H_
#define PYFT_SERVER_RECOVERY_RESTORE_H_

#include <functional>
#include <span>
#include <string>

#include "server/recovery/calls.h"
#include "server/recovery/store.h"
#include "server/session.h"

namespace pyft::server {

using DispatchEntry =
    std::function<Status(Session&, const ring::EntryHeader&, std::span<const std::byte> body,
                         std::span<const std::byte> payload)>;

struct Restored {
  std::string error;      // empty: all is there, and every digest is right
  uint64_t position = 0;  // in the ring: replay starts here
};

// Objects as they were at the recovery point; with none (nothing has been captured yet) there is
// nothing to do, and replay starts at 0. `dispatch` gets every creating, configuring and destroying
// entry; what it leaves for later (communicators) is its business.
Restored restore_objects(Session& session, const Store& store, const RecoveryCalls& calls,
                         const DispatchEntry& dispatch);

// Contents of all blocks, each with the digest it was captured with: of what is read from the store
// and of what the device then has. A sentence, or nothing when all is well.
std::string restore_contents(Session& session, const Store& store, const RecoveryCalls& calls);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_RESTORE_H_
