// What the server does with its device before the first command: context and address window.
#ifndef PYFT_SERVER_DEVICE_H_
#define PYFT_SERVER_DEVICE_H_

#include <string>

#include "backend/backend.h"
#include "server/collective_marks.h"
#include "server/session.h"
#include "server/stream_words.h"

namespace pyft::server {

// The backend's number of each of the program's devices, from PYFT_ORDINALS; empty: the same.
std::vector<int> ordinals();

// Creates the primary context of a device and makes it current in this thread. Empty string, or a
// sentence that names the call and its code.
std::string enter_context(const backend::Table& table, int ordinal, CUcontext* context);
// Reserves the window of the program's device at its fixed address (the address that comes back is
// compared: the driver takes it as a hint). As above.
std::string reserve_window(const backend::Table& table, uint32_t device);

// What of the device makes a fault of one server a fault of others: a sentence, or empty.
std::string shared_fate(const backend::Table& table, int ordinal);

// `words`: how the device signals, nullptr if it cannot; `marks`: how streams in collectives are
// seen then, nullptr if the collectives are pyft's own, or nobody can see them. Both outlive the
// result.
DeviceCalls device_calls(const backend::Table& table, const backend::Extras& extras, int ordinal,
                         StreamWords* words, CollectiveMarks* marks);

// What each further thread of the server does before it works on the device. In relaxed mode:
// otherwise its looks at streams would break the program's captures (design-cuda.md, C5).
void enter_thread(const backend::Table& table, CUcontext context);

}  // namespace pyft::server

#endif  // PYFT_SERVER_DEVICE_H_
