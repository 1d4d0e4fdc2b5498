// Frees what idle communicators keep: a thread of the process asks the other ranks, now and then,
// what they have completed. Busy communicators learn that from the frames they receive.
#ifndef FLEXCCL_CORE_KEEPER_H_
#define FLEXCCL_CORE_KEEPER_H_

namespace flexccl {

class Runner;

void keep_watch(Runner* runner);
// The thread asks for this one as soon as it can. Never waits.
void hurry(Runner* runner);
// Afterwards the thread does not touch it any more.
void end_watch(Runner* runner);

}  // namespace flexccl

#endif  // FLEXCCL_CORE_KEEPER_H_
