// What the server does with its device before the first command: context and address window.
#ifndef PYFT_SERVER_DEVICE_H_
#define PYFT_SERVER_DEVICE_H_

#include <string>

#include "backend/backend.h"
#include "server/session.h"

namespace pyft::server {

// Creates the primary context of `device`, makes it current in this thread and reserves the window
// at its fixed address (the address that comes back is compared: the driver takes it as a hint).
// Empty string, or a sentence that names the call and its code.
std::string prepare_device(const backend::Table& table, uint32_t device, CUcontext* context);

// `device` is the backend's ordinal.
DeviceCalls device_calls(const backend::Table& table, const backend::Extras& extras,
                         uint32_t device);

}  // namespace pyft::server

#endif  // PYFT_SERVER_DEVICE_H_
