// Which streams of this process capture, and what that forbids. The backend records and knows the
// true state of a capture; the client knows which server to ask, and what must not be sent
// meanwhile.
//
// While a device captures, every command waits for its code (Device::send), so that a call which
// breaks the capture gets its error itself. Nothing is appended to capturing streams that the
// program did not ask for: a completion word would become a node.
#ifndef PYFT_CLIENT_DEVICE_CAPTURE_H_
#define PYFT_CLIENT_DEVICE_CAPTURE_H_

#include "client/device/stream.h"

namespace pyft::client {

cudaError_t begin_capture(Stream& stream, cudaStreamCaptureMode mode);
struct EndedCapture {
  bool invalidated = false;  // by a call that never reached the backend
  uint64_t graph = 0;        // the handle that the program was told already; 0: none
};

// The capture that began on this stream is over here, and the backend is to be told.
cudaError_t leave_to_end(Stream& stream, EndedCapture* ended);
// The handle of the graph that a capture is to become; it keeps the first that is `offered`.
// 0: the capture is over.
uint64_t graph_of_capture(uint64_t id, uint64_t offered);
// Whether anything captures at all; takes no lock.
bool any_captures();
// Status and id of the stream's capture; the id is 0 without one.
cudaError_t capture_status(Stream& stream, cudaStreamCaptureStatus* status, uint64_t* id);

// The stream has waited for an event of the capture `id`, and takes part from now on.
void join_capture(Stream& stream, uint64_t id);
// It does not, after all.
void leave_capture(Stream& stream, uint64_t id);
// False when that capture has ended.
bool capture_lives(uint64_t id);
bool device_captures(const Device& device);
// Whether a command belongs to a capture: it begins or ends one, or names a stream that captures.
bool belongs_to_capture(const Device& device, Call call, Bytes body);

// Calls that wait for what a capture has only written down: they fail and end the capture.
cudaError_t check_wait(const Stream& stream);
cudaError_t check_wait(const Device& device);
// Calls that CUDA names potentially unsafe, such as cudaMalloc: forbidden by the thread's mode.
cudaError_t check_unsafe_call();

cudaStreamCaptureMode& thread_capture_mode();

}  // namespace pyft::client

#endif  // PYFT_CLIENT_DEVICE_CAPTURE_H_
