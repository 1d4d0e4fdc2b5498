// A rank's position among the live ones, which follow each other in a ring.
#ifndef FLEXCCL_BASE_RING_H_
#define FLEXCCL_BASE_RING_H_

namespace flexccl {

struct Ring {
  int rank = 0, size = 1;
  int wrap(int slot) const { return ((slot % size) + size) % size; }
  int next() const { return wrap(rank + 1); }
  int previous() const { return wrap(rank - 1); }
};

}  // namespace flexccl

#endif  // FLEXCCL_BASE_RING_H_
