// Host functions of the program in the server's streams. The stream stands still in run(), on a
// thread of the backend, while the client runs the function; other streams go on. One question is
// open at a time, as host functions of a CUDA device run one after the other.
//
// There is no deadline on the function, which may take minutes: the wait ends with the answer or
// with the agent's connection. The server counts the runs of each function, so that a question
// asked again by a new server is recognised: functions run once. A snapshot has these numbers for
// those in graphs, whose earlier launches are not repeated.
#ifndef PYFT_SERVER_SESSION_CALLBACKS_H_
#define PYFT_SERVER_SESSION_CALLBACKS_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>

#include "server/session/session.h"

namespace pyft::server {

class Callbacks {
 public:
  // Lives as long as the process, because the backend's threads may come to a function at any time;
  // this is what the session owns.
  struct Handle {
    Handle();
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    Callbacks* const all;
  };
  struct Callback {
    Callbacks* owner;
    Session* session;
    uint64_t id;
    bool in_graph;  // may run again: never dropped
    uint64_t runs = 0;
    std::list<Callback>::iterator self;
  };

  Callback* add(Session& session, uint64_t id, bool in_graph);
  void drop(Callback* callback);
  // All streams have come to their ends, at the cut of this entry.
  void keep_runs(checkpoint::Journal& journal, uint64_t seq);
  // What the backend calls when the stream is there; `callback` is a Callback.
  static void run(void* callback);

 private:
  void end();
  static uint64_t runs_before(Session& session, uint64_t id);
  void ask(Session& session, uint64_t id, uint64_t run);
  std::mutex mutex_, question_mutex_;
  std::list<Callback> callbacks_;
  std::atomic<bool> ending_{false};
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_SESSION_CALLBACKS_H_
