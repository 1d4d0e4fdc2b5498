// Calls after which a stream may wait for other ranks, with marks around what they put into it.
#ifndef PYFT_SERVER_SESSION_MARKED_H_
#define PYFT_SERVER_SESSION_MARKED_H_

#include <functional>
#include <vector>

#include "server/session/collective_marks.h"
#include "server/session/session.h"

namespace pyft::server {

// Of one session. NCCL's groups belong to a thread: here to the one that dispatches.
struct MarkedCalls {
  int depth = 0;                  // of groups that have begun
  std::vector<CUstream> streams;  // of the group's operations, each once
  std::vector<CUstream> entered;  // those of them that were marked
  bool in_graphs = false;         // a collective has been captured
  // Of the group's operations, what keeps their results (session/kept.h) when it has ended.
  std::vector<std::function<void()>> at_end;
};

// False: no mark was made, and none is to follow. While a stream captures, a mark would become a
// node that writes the same old number at each launch of the graph.
bool enter_marked(Session& session, CUstream stream);

// `call` puts something into the stream that may wait for other ranks, or fails to.
template <class Call>
int marked(Session& session, CUstream stream, Call call) {
  const bool is_marked = enter_marked(session, stream);
  const int code = call();
  if (is_marked) session.marks()->leave(stream);
  return code;
}

// What is put into the stream now becomes part of a graph.
bool is_captured(Session& session, CUstream stream);

// The group puts something into this stream when it ends, and nothing before.
void note_in_group(Session& session, CUstream stream);

}  // namespace pyft::server

#endif  // PYFT_SERVER_SESSION_MARKED_H_
