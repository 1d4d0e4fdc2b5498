#include "server/profile/profile.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "pyft/log.h"
#include "pyft/settings.h"

namespace pyft::server {
namespace {

constexpr auto kIds = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
// CUPTI writes an external id before the record of a call: so calls are recorded as well.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};
constexpr size_t kBufferBytes = size_t{1} << 20, kMostBuffers = 256;

// Buffers that CUPTI has, and those that it has given back. Its callbacks may come in any thread.
struct Buffers {
  std::mutex mutex;
  size_t lent = 0;
  std::vector<std::pair<uint8_t*, size_t>> full;
};

Buffers& buffers() {
  static Buffers* const all = std::make_unique<Buffers>().release();
  return *all;
}

// Without one CUPTI drops what it would have written.
void request(uint8_t** buffer, size_t* bytes, size_t* most) {
  const std::lock_guard lock(buffers().mutex);
  *most = 0;
  *buffer = buffers().lent + buffers().full.size() < kMostBuffers
                ? static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes))
                : nullptr;
  *bytes = *buffer ? kBufferBytes : 0;
  if (*buffer) ++buffers().lent;
}

void complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(buffers().mutex);
  --buffers().lent;
  buffers().full.emplace_back(buffer, valid);
}

std::vector<std::pair<uint8_t*, size_t>> take_full() {
  const std::lock_guard lock(buffers().mutex);
  return std::exchange(buffers().full, {});
}

}  // namespace

bool Profile::start() {
  if (runs_ || failed_) return runs_;
  std::string why = backend::load_cupti(settings::backend_library(), &cupti_);
  if (why.empty()) {
    int code = cupti_.register_callbacks(request, complete);
    for (const CUpti_ActivityKind kind : kKinds)
      if (!code) code = cupti_.enable(kind);
    if (code) why = "it fails with code [" + std::to_string(code) + "]";
  }
  failed_ = !why.empty();
  if (failed_)
    PYFT_LOG(kServer, kWarning, "profiles show nothing of the device: no CUPTI: %s", why.c_str());
  return runs_ = !failed_;
}

bool Profile::begin_entry(uint64_t seq) {
  return start() && cupti_.push_id(kIds, seq) == CUPTI_SUCCESS;
}

void Profile::end_entry() {
  uint64_t seq = 0;
  cupti_.pop_id(kIds, &seq);
}

const std::vector<std::byte>& Profile::collect() {
  ready_.clear();
  if (!runs_) return ready_;
  cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (const auto& [buffer, valid] : take_full()) {
    collected_.add(cupti_, buffer, valid);
    std::free(buffer);
  }
  size_t dropped = 0;
  if (cupti_.dropped(nullptr, 0, &dropped) == CUPTI_SUCCESS) dropped_ += dropped;
  return ready_ = collected_.take();
}

uint64_t Profile::take_dropped() {
  return std::exchange(dropped_, 0);
}

void Profile::end() {
  if (!runs_) return;
  for (const CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
  collected_.forget_calls();
  runs_ = false;
}

void ProfiledEntry::begin(Session& session, uint64_t seq) {
  if (session.recovery().replaying()) return;
  Profile& profile = session.state<Profile>();
  if (profile.begin_entry(seq)) profile_ = &profile;
}

}  // namespace pyft::server
