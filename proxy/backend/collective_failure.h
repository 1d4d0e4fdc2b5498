// Word of a failed communicator before the stream of its operation goes on.
#ifndef PYFT_BACKEND_COLLECTIVE_FAILURE_H_
#define PYFT_BACKEND_COLLECTIVE_FAILURE_H_

namespace pyft::backend {

// flexcclSetFailed; no effect where the backend's collectives are not flexccl's: an operation of
// NCCL that fails stands still until its communicator is aborted.
void on_collective_failure(void (*told)());

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_COLLECTIVE_FAILURE_H_
