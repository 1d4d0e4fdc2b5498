// Frees what idle communicators keep: a thread of the process asks the other ranks, now and then,
// what they have completed. Busy communicators learn that from the frames they receive.
#ifndef FLEXCCL_RUNNER_RECLAIMER_H_
#define FLEXCCL_RUNNER_RECLAIMER_H_

namespace flexccl {

class OperationRunner;

void keep_watch(OperationRunner* runner);
// The thread asks for this one as soon as it can. Never waits.
void hurry(OperationRunner* runner);
// Afterwards the thread does not touch it any more.
void end_watch(OperationRunner* runner);

}  // namespace flexccl

#endif  // FLEXCCL_RUNNER_RECLAIMER_H_
