// What the engine knows about one other rank: its links, and how far the frames on them are.
#ifndef FLEXCCL_ALGO_PEER_H_
#define FLEXCCL_ALGO_PEER_H_

#include <memory>
#include <vector>

#include "algo/engine.h"

namespace flexccl {

// Frames are padded to whole blocks.
inline std::size_t padded(std::size_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

struct Engine::Peer {
  int slot = 0;
  std::unique_ptr<Connection> connection;  // while `out` is being made
  std::unique_ptr<Outbound> out;
  Inbound* in = nullptr;  // owned by the inbox
  std::uint32_t frames_sent = 0, frames_received = 0;

  std::vector<int> sends, receives;  // of the running schedule
  std::size_t next_send = 0, next_receive = 0;
  std::size_t sent = 0;  // bytes of the current frame, header included
  std::size_t received = 0;
  FrameHeader header;
  const std::byte* from = nullptr;
  std::byte tail[kBlockBytes];
  Deadline lost_at = {};  // since when the other side seems to have left
  Deadline retry_at = {};
  // Of frames that a repair cut in two: bytes still to be sent, and to be dropped.
  std::size_t owed = 0, skip = 0, receiving = 0;
  FrameHeader owed_header = {};  // its last bytes go first, when it was cut in two itself
  std::size_t owed_of_header = 0;
  bool pays = false;        // it has begun to, in this epoch
  std::uint32_t ahead = 0;  // the later epoch in which it is; 0: it is not
  std::uint64_t done = 0;   // the last collective it is known to have completed
};

}  // namespace flexccl

#endif  // FLEXCCL_ALGO_PEER_H_
