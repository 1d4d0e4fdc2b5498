#include "stream/ipc_event.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <vector>

namespace softgpu {
namespace {

struct Slots {
  std::mutex mutex;
  std::vector<SharedEventPlace> free;
  std::vector<std::pair<int, SharedEventWords*>> files;
};

// Never destroyed: events may be dropped while the process exits.
Slots& slots() {
  static auto* const all = std::make_unique<Slots>().release();
  return *all;
}

SharedEventWords* map_words(int fd) {
  void* at = mmap(nullptr, kSharedEventBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<SharedEventWords*>(at);
}

// Precondition: the lock is held.
bool add_file() {
  const int fd = memfd_create("softgpu-events", MFD_CLOEXEC);
  if (fd < 0) return false;
  SharedEventWords* const words =
      ftruncate(fd, static_cast<off_t>(kSharedEventBytes)) == 0 ? map_words(fd) : nullptr;
  if (!words) {
    close(fd);
    return false;
  }
  slots().files.emplace_back(fd, words);
  for (uint32_t i = kSharedEventSlots; i-- > 0;) slots().free.push_back({fd, i});
  return true;
}

SharedEventWords* words_of(const SharedEventPlace& place) {
  for (const auto& [fd, words] : slots().files) {
    if (fd == place.fd) return words + place.slot;
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::create() {
  const std::scoped_lock lock(slots().mutex);
  if (slots().free.empty() && !add_file()) return nullptr;
  const SharedEventPlace place = slots().free.back();
  slots().free.pop_back();
  SharedEventWords* const words = words_of(place);
  // An earlier event may have ended with a record that was never reached.
  words->reached.store(words->asked.load());
  return std::make_shared<SharedEvent>(Key{}, place, words, true);
}

std::shared_ptr<SharedEvent> SharedEvent::open(SharedEventPlace place) {
  SharedEventWords* const words = place.slot < kSharedEventSlots ? map_words(place.fd) : nullptr;
  if (!words) return nullptr;
  return std::make_shared<SharedEvent>(Key{}, place, words + place.slot, false);
}

SharedEvent::~SharedEvent() {
  if (!own_) {
    munmap(words_ - place_.slot, kSharedEventBytes);
    return;
  }
  const std::scoped_lock lock(slots().mutex);
  slots().free.push_back(place_);
}

std::function<Fault()> SharedEvent::record() {
  words_->recorder.store(getpid(), std::memory_order_relaxed);
  const uint64_t number = words_->asked.fetch_add(1, std::memory_order_acq_rel) + 1;
  return [self = shared_from_this(), number]() -> Fault {
    uint64_t before = self->words_->reached.load(std::memory_order_relaxed);
    // Release: a process that sees the number also sees what the stream wrote before it.
    while (before < number && !self->words_->reached.compare_exchange_weak(
                                  before, number, std::memory_order_release)) {
    }
    return {};
  };
}

std::function<bool()> SharedEvent::recorded() {
  const uint64_t number = words_->asked.load(std::memory_order_acquire);
  return [self = shared_from_this(), number] {
    if (self->words_->reached.load(std::memory_order_acquire) >= number) return true;
    const auto recorder = static_cast<pid_t>(self->words_->recorder.load());
    return recorder != getpid() && kill(recorder, 0) != 0 && errno == ESRCH;
  };
}

}  // namespace softgpu
