#include "server/device.h"

#include <dlfcn.h>

#include <cstdlib>

#include "backend/repair.h"
#include "checkpoint/device.h"
#include "pyft/settings.h"

namespace pyft::server {

namespace {

// A function of the soft GPU or of the library of collectives beside it; nullptr: another backend.
void* find_beside(const char* name, const char* file) {
  const std::string path = settings::backend_library();
  if (path.empty()) return nullptr;
  const std::string library = file ? path.substr(0, path.find_last_of('/') + 1) + file : path;
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return handle ? dlsym(handle, name) : nullptr;
}

using checkpoint::kNotReady;

// Publishing a word never blocks, so it may run where the device's work runs.
class BackendCalls : public DeviceCalls {
 public:
  BackendCalls(const backend::Backend& backend, int ordinal, CUcontext context, StreamWords* words,
               CollectiveMarks* marks)
      : table_(backend.table),
        extras_(backend.extras),
        ordinal_(ordinal),
        context_(context),
        words_(words),
        marks_(words ? marks : nullptr) {
    if (!backend.is_soft()) make_probe();
    find_soft_gpu();
  }
  int publish(void* stream, void (*function)(void*), void* data) override {
    if (extras_.publish) return extras_.publish(stream, function, data);
    return table_.cuLaunchHostFunc(static_cast<CUstream>(stream), function, data);
  }
  int signal(void* stream, void (*function)(void*), void* data) override {
    return words_ ? words_->signal(stream, function, data) : publish(stream, function, data);
  }
  int status() override;
  int status_in_capture() override { return has_probe_ ? probe() : status(); }
  bool works() const override { return extras_.work; }
  bool work() override { return extras_.work(ordinal_) != 0; }
  std::optional<uint64_t> progress() override;
  std::optional<uint64_t> waiting() override;
  bool sees_collectives() override {
    return collectives_waiting_ || !words_ || (marks_ && marks_->sees());
  }
  CollectiveMarks* marks() override { return marks_; }
  void enter() override { enter_thread(table_, context_); }

 private:
  void make_probe();
  int probe();
  void find_soft_gpu();

  const backend::Table& table_;
  const backend::Extras& extras_;
  const int ordinal_;
  const CUcontext context_;
  StreamWords* const words_;
  CollectiveMarks* const marks_;
  CUstream probe_stream_ = nullptr;
  CUevent probe_event_ = nullptr;
  bool has_probe_ = false;
  unsigned long long (*kernel_time_)(int) = nullptr;
  unsigned long long (*collectives_waiting_)() = nullptr;
};

// How a context is asked whether it has failed. A stream that has nothing to do may not know of it:
// so it is given something. It is no stream of the program's, and waits for none: the default
// stream must not even be looked at while a blocking stream captures, which would break the
// capture.
void BackendCalls::make_probe() {
  has_probe_ = table_.cuStreamQuery && table_.cuStreamCreateWithPriority && table_.cuEventCreate &&
               table_.cuEventRecord &&
               !table_.cuStreamCreateWithPriority(&probe_stream_, CU_STREAM_NON_BLOCKING, 0) &&
               !table_.cuEventCreate(&probe_event_, CU_EVENT_DISABLE_TIMING);
}

int BackendCalls::probe() {
  const int code = table_.cuEventRecord(probe_event_, probe_stream_);
  return code ? code : static_cast<int>(table_.cuStreamQuery(probe_stream_));
}

int BackendCalls::status() {
  if (!table_.cuStreamQuery) return 0;
  const int code = has_probe_ ? probe() : 0;
  return code == 0 || code == kNotReady ? static_cast<int>(table_.cuStreamQuery(nullptr)) : code;
}

void BackendCalls::find_soft_gpu() {
  kernel_time_ =
      reinterpret_cast<unsigned long long (*)(int)>(find_beside("softgpu_kernel_time_ns", nullptr));
  if (backend::collectives_are_flexccl())
    collectives_waiting_ = reinterpret_cast<unsigned long long (*)()>(
        find_beside("pyft_collectives_waiting", "libpyft_collectives.so"));
}

std::optional<uint64_t> BackendCalls::progress() {
  if (kernel_time_) return kernel_time_(ordinal_);
  if (words_) return words_->progress() + (marks_ ? marks_->passed() : 0);
  return {};
}

// flexccl's say themselves when they wait.
std::optional<uint64_t> BackendCalls::waiting() {
  if (collectives_waiting_) return collectives_waiting_();
  if (words_) return marks_ ? marks_->waiting() : 0;
  return {};
}

}  // namespace

std::vector<int> ordinals() {
  std::vector<int> found;
  const char* at = settings::ordinals();
  for (char* end = nullptr; *at; at = *end ? end + 1 : end) {
    found.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    if (end == at) return {};
  }
  return found;
}

int ordinal_of(uint32_t device) {
  const std::vector<int> all = ordinals();
  return device < all.size() ? all[device] : static_cast<int>(device);
}

// MPS ends all of its clients when one fails, and admits no new ones until all have ended: none
// could take over.
std::string shared_fate(const backend::Table& table, int ordinal) {
  int shares = 0;
  if (!table.cuDeviceGetAttribute ||
      table.cuDeviceGetAttribute(&shares, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, ordinal) || !shares)
    return {};
  return "the GPU is shared by MPS, where one process that fails takes the others with it: faults "
         "cannot be repaired. End nvidia-cuda-mps-control, or set CUDA_MPS_PIPE_DIRECTORY to an "
         "empty folder";
}

void enter_thread(const backend::Table& table, CUcontext context) {
  table.cuCtxSetCurrent(context);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (table.cuThreadExchangeStreamCaptureMode) table.cuThreadExchangeStreamCaptureMode(&mode);
}

std::unique_ptr<DeviceCalls> device_calls(const backend::Backend& backend, int ordinal,
                                          CUcontext context, StreamWords* words,
                                          CollectiveMarks* marks) {
  return std::make_unique<BackendCalls>(backend, ordinal, context, words, marks);
}

}  // namespace pyft::server
