// Faults on purpose: a wrapper around a link that loses, delays, damages or cuts what passes, or
// kills its rank, at a frame of choice. For tests of everything that has to survive that.
//
// Rules are separated by `;`. A rule: `ACTION[:N][,key=value]...`, where N is the same as frame=
// (the spelling of before, `ACTION:key=value`, is still taken). Actions:
//   kill      ends the process, by SIGKILL
//   cut       ends only this rank's end of the communicator: all its links fail from then on
//   drop      the frame is not sent
//   delay     the frame is held for ms=
//   corrupt   the lowest bit of byte bytes= is flipped
//   truncate  the link is closed after bytes= of the frame
//   rank=  the rank that acts       (default: any)   peer=  at the other end of the link
//   frame= the how manieth frame of this rank in its communicator, or on its links with peer= when
//          that is given, counted from 1 (default 1)
//   on=send (default) or on=receive: which frames count; `receive` works for kill, cut and delay.
//          on=repair: the messages by which a new rank takes its place, both ways; kill and cut
//          on=init: not frames, but the places of ncclCommInitRank: 1 it begins, 2 the rank has
//          found which process answers, 3 has said which rank it is, 4 knows the others, 5 has a
//          communicator, 6 returns; on=split: those of ncclCommSplit and ncclCommShrink, in the new
//          communicator: 1 the rank knows which ranks are in it, 2 has said so, 3 has it, 4
//          returns; on=answer: the process that answers is about to do so, for the how manieth
//          rank; kill
//   bytes= how much of a frame has passed; whole blocks for truncate, kill and cut (default 0)
// Each rule acts once. For example: `delay:2,rank=0,ms=100;kill:7,rank=1,bytes=64`.
// FLEXCCL_FAULT_NOTES names a file that exists: a rule that acts appends a line to it before.
#ifndef FLEXCCL_TRANSPORT_FAULT_H_
#define FLEXCCL_TRANSPORT_FAULT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "transport/link.h"

namespace flexccl {

// Both ends of a link, seen from the rank whose end is wrapped.
struct LinkName {
  std::uint64_t comm;
  std::uint32_t epoch, rank, peer;
};

// Replaces the rules; counting starts anew. Null: links made from now on are not wrapped. Throws
// ncclInvalidArgument with the part of the text that makes no sense.
void set_faults(const char* rules);
// Reads FLEXCCL_FAULT, once. Throws as set_faults().
void read_faults_from_environment();

// Between two messages of a repair: ends the rank if a rule says so. Throws as a cut link.
void fault_in_repair(const LinkName& name);
// The same for the places of ncclCommInitRank, of ncclCommSplit, and for answers at the rendezvous.
void fault_in_init(std::uint64_t comm, int rank);
void fault_in_split(std::uint64_t comm, int rank);
void fault_in_answer();

// The link itself when no rules are set.
std::unique_ptr<Outbound> with_faults(std::unique_ptr<Outbound> link, const LinkName& name);
std::unique_ptr<Inbound> with_faults(std::unique_ptr<Inbound> link, const LinkName& name);

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_FAULT_H_
