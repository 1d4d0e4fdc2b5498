// What a server does between attaching and dispatching.
#ifndef PYFT_SERVER_RECOVERY_TAKEOVER_H_
#define PYFT_SERVER_RECOVERY_TAKEOVER_H_

#include <memory>
#include <string>

#include "server/recovery/restore.h"
#include "server/session.h"

namespace pyft::server {

// The store of the channel, laid out or checked; nullptr without one, or with a sentence. Before
// the session, which has its journal in there.
// `locks_pages`: the device reads the journal where it lies, which costs a page-lock of all of it
// at each start: it is smaller then.
std::unique_ptr<Store> open_store(ring::Channel& channel, bool locks_pages, std::string* error);

// If an earlier server has worked for the client, puts the device into the state of the last
// captured cut. Returns the ring position to start from. Ends the process
// (FaultKind::kUnrecoverable) when something is missing or does not have the digest it must have.
uint64_t prepare_recovery(Session& session, Store* store, const RecoveryCalls& calls,
                          const DispatchEntry& dispatch);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_TAKEOVER_H_
