// What the soft GPU says by itself: on stderr, or to the function that the program around it has
// set (softgpu_set_log), which has levels of its own.
#ifndef SOFTGPU_CORE_LOG_H_
#define SOFTGPU_CORE_LOG_H_

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "softgpu.h"

namespace softgpu {

inline std::atomic<softgpu_log_t> log_function{nullptr};

// One line, without its end.
[[gnu::format(printf, 2, 3)]] inline void log_line(softgpu_log_level level, const char* format,
                                                   ...) {
  char sentence[4096];
  va_list values;
  va_start(values, format);
  std::vsnprintf(sentence, sizeof sentence, format, values);
  va_end(values);
  if (const softgpu_log_t function = log_function.load())
    function(level, sentence);
  else
    std::fprintf(stderr, "softgpu: %s\n", sentence);
}

}  // namespace softgpu

#endif  // SOFTGPU_CORE_LOG_H_
