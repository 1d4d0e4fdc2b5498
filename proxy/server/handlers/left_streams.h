// Streams that the program has ended, on a device that threads of this process work for. Their work
// goes on, and a cut has to wait for it too: nothing else names it any more.
#ifndef PYFT_SERVER_HANDLERS_LEFT_STREAMS_H_
#define PYFT_SERVER_HANDLERS_LEFT_STREAMS_H_

#include <vector>

#include "backend/backend.h"

namespace pyft::server {

// The dispatch thread.
class LeftStreams {
 public:
  // Ended for the backend when its work is done.
  void add(CUstream stream) { streams_.push_back(stream); }
  // 0: all have come to their ends, and are gone; else the code of the first that has not.
  int idle(const backend::Table& api) {
    int code = 0;
    std::erase_if(streams_, [&](CUstream stream) {
      const int one = api.cuStreamQuery(stream);
      if (!one) api.cuStreamDestroy_v2(stream);
      if (one && !code) code = one;
      return !one;
    });
    return code;
  }

 private:
  std::vector<CUstream> streams_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_HANDLERS_LEFT_STREAMS_H_
