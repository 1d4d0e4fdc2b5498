// A log object looked at by a process that is neither client nor server: the memory object of a
// live job, or the file the agent saved (the same bytes, sparse).
#ifndef PYFT_RING_LOG_FILE_H_
#define PYFT_RING_LOG_FILE_H_

#include <memory>
#include <string>

#include "ring/channel.h"

namespace pyft::ring {

class LogFile {
 public:
  // Maps it read-only. nullptr and a sentence when it is not a log. `fd` stays the caller's.
  static std::unique_ptr<LogFile> map(int fd, std::string* error);
  static std::unique_ptr<LogFile> open(const char* path, std::string* error);
  const LogView& view() const { return view_; }

 private:
  Mapping mapping_;
  LogView view_;
};

}  // namespace pyft::ring

#endif  // PYFT_RING_LOG_FILE_H_
