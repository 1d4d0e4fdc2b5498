// RecoveryCalls of a session: the backend's table, what the backend offers beside it, and the
// handlers' records of what the program has mapped and loaded.
#ifndef PYFT_SERVER_RECOVERY_DEVICE_MEMORY_H_
#define PYFT_SERVER_RECOVERY_DEVICE_MEMORY_H_

#include "backend/backend.h"
#include "server/recovery/calls.h"
#include "server/session.h"

namespace pyft::server {

// Both arguments must outlive the result.
RecoveryCalls recovery_calls(Session& session, const backend::Extras& extras);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_DEVICE_MEMORY_H_
