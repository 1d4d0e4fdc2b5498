// The control file, SOFTGPU_CONTROL=<path>: lines added to it while the process runs are faults on
// request (fault_request.h), so that a live process can be told to fail from outside.
#ifndef SOFTGPU_FAULT_CONTROL_FILE_H_
#define SOFTGPU_FAULT_CONTROL_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace softgpu {

// Reads what has been added since the last look. What was there at the beginning is never read: it
// was meant for an earlier process. A file that was replaced or cut is read from its start.
class ControlFile {
 public:
  explicit ControlFile(std::string path);
  // The complete lines that are new; "" if there are none or the file cannot be read.
  std::string take();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  uint64_t inode_ = 0, offset_ = 0;
};

// Starts a thread that sleeps until the file changes and gives each new line to `take`. Does
// nothing without SOFTGPU_CONTROL. To be called once.
void watch_control_file(std::function<void(std::string_view)> take);

}  // namespace softgpu

#endif  // SOFTGPU_FAULT_CONTROL_FILE_H_
