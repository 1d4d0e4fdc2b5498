// Host functions in streams (cudaLaunchHostFunc, cudaStreamAddCallback). The function stays here
// and has a number; the stream in the server reaches the number, asks for it in shared memory
// (ring/layout.h, server/session/callbacks.h) and stands still until a thread of this process has
// run it.
//
// A function runs once for each time its stream reaches it: a second question about a run that is
// done (a new server may ask it) is only answered. If the device is lost, callbacks of
// cudaStreamAddCallback get the error, and functions of cudaLaunchHostFunc never run, as in CUDA.
#ifndef PYFT_CLIENT_DEVICE_CALLBACK_H_
#define PYFT_CLIENT_DEVICE_CALLBACK_H_

#include <functional>

#include "client/device/stream.h"

namespace pyft::client {

cudaError_t launch_host_function(cudaStream_t stream, cudaHostFn_t function, void* data);
// `function` gets the state of the stream.
cudaError_t add_callback(cudaStream_t stream, std::function<void(cudaError_t)> function);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_DEVICE_CALLBACK_H_
