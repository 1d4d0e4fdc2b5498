// What a session asks of its device, and how a thread gets to work on it.
#ifndef PYFT_SERVER_DEVICE_H_
#define PYFT_SERVER_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "server/session/collective_marks.h"
#include "server/session/device_calls.h"
#include "server/stream_words.h"

namespace pyft::server {

// The backend's number of each of the program's devices, from PYFT_ORDINALS; empty: the same.
std::vector<int> ordinals();
// Of one of them.
int ordinal_of(uint32_t device);

// What of the device makes a fault of one server a fault of others: a sentence, or empty.
std::string shared_fate(const backend::Table& table, int ordinal);

// `context`: that threads enter; `words`: how the device signals, nullptr if it cannot; `marks`:
// how streams in collectives are seen then, nullptr if the collectives are pyft's own, or nothing
// can see them. All outlive the result.
std::unique_ptr<DeviceCalls> device_calls(const backend::Backend& backend, int ordinal,
                                          CUcontext context, StreamWords* words,
                                          CollectiveMarks* marks);

// What each further thread of the server does before it works on the device. In relaxed mode:
// otherwise its looks at streams would break the program's captures (C5).
void enter_thread(const backend::Table& table, CUcontext context);

}  // namespace pyft::server

#endif  // PYFT_SERVER_DEVICE_H_
