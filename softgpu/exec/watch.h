// What is told of accesses to global memory while a launch runs: a tracker of blocks side by side,
// a journal of what is written, both or one.
#ifndef SOFTGPU_EXEC_WATCH_H_
#define SOFTGPU_EXEC_WATCH_H_

#include "core/journal.h"
#include "exec/track.h"

namespace softgpu::exec {

// All calls are for memory that is mapped; false: the blocks have to stop.
struct Watch {
  Tracker* tracker = nullptr;  // set while other threads run blocks of the same launch
  Journal* journal = nullptr;

  bool read(uint64_t address, uint32_t bytes) const {
    return (!tracker || tracker->read(address, bytes)) && (!journal || journal->read(address));
  }
  bool write(uint64_t address, uint32_t bytes, uint64_t block) const {
    return (!tracker || tracker->write(address, bytes)) &&
           (!journal || journal->write(address, bytes, block));
  }
  // Elements at address + offsets[lane], which do not cross lines.
  bool read_each(uint64_t address, const Row& offsets, uint32_t lanes) const {
    return (!tracker || tracker->read_each(address, offsets, lanes)) &&
           (!journal || journal->read(address));
  }
  bool write_each(uint64_t address, const Row& offsets, uint32_t lanes, uint32_t bytes,
                  uint64_t block) const {
    if (tracker && !tracker->write_each(address, offsets, lanes)) return false;
    if (!journal) return true;
    for (; lanes; lanes &= lanes - 1) {
      const uint64_t at = address + offsets.lane[__builtin_ctz(lanes)];
      if (!journal->write(at, bytes, block)) return false;
    }
    return true;
  }
  // Something that has its order among blocks, or cannot be compared.
  bool may(Unlike what) const { return !tracker && (!journal || journal->may(what)); }
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_WATCH_H_
