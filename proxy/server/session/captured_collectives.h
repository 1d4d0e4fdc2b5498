// Collectives and messages that have been captured into graphs: at each launch of one they are
// made, by this rank and by the others, which count them.
//
// Two captures at the same time are not told apart, as in the object log. Dispatch thread.
#ifndef PYFT_SERVER_SESSION_CAPTURED_COLLECTIVES_H_
#define PYFT_SERVER_SESSION_CAPTURED_COLLECTIVES_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "server/session/session.h"

namespace pyft::server {

class CapturedCollectives {
 public:
  struct One {
    enum class What : uint8_t { kCollective, kSend, kReceive };
    uint64_t comm;
    What what = What::kCollective;
    int peer = 0;
  };

  // It is about to be put into this stream: counted, or kept for the graph that captures it.
  void put(Session& session, void* stream, const One& one);
  // A capture begins while there is none; its graph exists, or not; it is made executable.
  void begin() { open_.clear(); }
  void end(uint64_t graph);
  void instantiate(uint64_t exec, uint64_t graph);
  void destroy(uint64_t graph_or_exec) { of_.erase(graph_or_exec); }
  // The graph is about to be launched into this stream. Something of this rank goes to others then.
  void launch(Session& session, void* stream, uint64_t exec);

 private:
  using All = std::vector<One>;
  static void count(Session& session, const One& one);

  All open_;                              // captured, of a graph that does not exist yet
  std::unordered_map<uint64_t, All> of_;  // by handle
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_SESSION_CAPTURED_COLLECTIVES_H_
