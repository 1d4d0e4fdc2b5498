// RecoveryCalls of a session: the backend's table, what the backend offers beside it, and the
// handlers' records of what the program has mapped and loaded.
#ifndef PYFT_SERVER_RECOVERY_DEVICE_MEMORY_H_
#define PYFT_SERVER_RECOVERY_DEVICE_MEMORY_H_

#include <memory>

#include "backend/backend.h"
#include "server/digest/device_digests.h"
#include "server/recovery/calls.h"
#include "server/recovery/digest.h"
#include "server/session.h"

namespace pyft::server {

// Both arguments must outlive the result.
RecoveryCalls recovery_calls(Session& session, const backend::Extras& extras);

// Which digest blocks have: one that a device can compute, where the server cannot look at the
// device's memory. It does not depend on whether this device can: all ranks have the same.
ring::DigestKind digest_kind(const backend::Extras& extras);
// The device computes them, if it can; else it is said why not. Before the program's modules,
// unless there is something `ready` that was made then.
void hash_on_device(Session& session, DigestKey key, RecoveryCalls* calls,
                    std::shared_ptr<DeviceDigests> ready = {});

// Memory of the server's own on the device, and copies to it in a stream of its own.
void copy_on_device(Session& session, RecoveryCalls* calls);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_DEVICE_MEMORY_H_
