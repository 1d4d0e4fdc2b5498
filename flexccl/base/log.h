// What flexccl says by itself: on stderr, or to the function that the program around it has set
// (flexcclSetLog), which has levels of its own.
#ifndef FLEXCCL_BASE_LOG_H_
#define FLEXCCL_BASE_LOG_H_

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "flexccl.h"

namespace flexccl {

enum LogLevel : int { kError, kWarning, kInfo };

inline std::atomic<flexcclLog_t> log_function{nullptr};

// One line, without its end.
[[gnu::format(printf, 2, 3)]] inline void log_line(LogLevel level, const char* format, ...) {
  char sentence[4096];
  va_list values;
  va_start(values, format);
  std::vsnprintf(sentence, sizeof sentence, format, values);
  va_end(values);
  if (const flexcclLog_t function = log_function.load())
    function(level, sentence);
  else
    std::fprintf(stderr, "flexccl: %s\n", sentence);
}

}  // namespace flexccl

#endif  // FLEXCCL_BASE_LOG_H_
