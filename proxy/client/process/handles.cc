#include "client/process/handles.h"

#include <atomic>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "client/process/usage.h"
#include "ring/completion.h"

namespace pyft::client {
namespace {

struct Slot {
  std::atomic<uint64_t> handle{0};  // 0: free
  std::atomic<void*> object{nullptr};
  uint32_t generation = 0;
};

Slot slots[ring::kCompletionWords];
std::mutex mutex;
std::vector<uint32_t> free_indexes;
uint32_t next_index = ring::kFirstFreeWord;
Usage word_usage;

// Objects of a kind without words.
struct OfKind {
  std::mutex mutex;
  std::vector<uint32_t> generations;  // of the last handle, by index - 1
  std::vector<uint32_t> free;
  Usage usage;
};
OfKind kinds[16];

std::string plural(HandleKind kind) {
  switch (kind) {
    case HandleKind::kModule:
      return "modules";
    case HandleKind::kKernel:
      return "kernels";
    case HandleKind::kGraph:
      return "graphs";
    case HandleKind::kGraphExec:
      return "instantiated graphs";
    case HandleKind::kCublas:
      return "cuBLAS handles";
    default:
      return "objects of kind " + std::to_string(static_cast<int>(kind));
  }
}

void watch(Usage& usage, uint64_t used, uint64_t limit, const std::string& what) {
  usage.watch(used, limit, what, "end some of them");
}

Slot* live_slot(uint64_t handle, HandleKind kind) {
  const Handle h{handle};
  if (h.kind() != kind || h.index() >= ring::kCompletionWords) return nullptr;
  Slot& slot = slots[h.index()];
  return slot.handle.load(std::memory_order_acquire) == handle ? &slot : nullptr;
}

// The mutex is held, below as well.
void* end_object(uint64_t handle, HandleKind kind) {
  Slot* slot = live_slot(handle, kind);
  if (!slot) return nullptr;
  slot->handle.store(0, std::memory_order_release);
  return slot->object.exchange(nullptr);
}

void free_word(uint64_t handle) {
  if (Handle{handle}.generation() < kMaxGeneration) free_indexes.push_back(Handle{handle}.index());
}

}  // namespace

uint64_t mint_word_handle(HandleKind kind, void* (*make)(uint64_t, void*), void* context) {
  const std::lock_guard lock(mutex);
  uint32_t index = 0;
  if (!free_indexes.empty()) {
    index = free_indexes.back();
    free_indexes.pop_back();
  } else if (next_index < ring::kCompletionWords) {
    index = next_index++;
    watch(word_usage, index, ring::kCompletionWords, "streams, events and communicators");
  } else {
    watch(word_usage, next_index, ring::kCompletionWords, "streams, events and communicators");
    return 0;
  }
  Slot& slot = slots[index];
  const uint64_t handle = Handle::make(kind, index, ++slot.generation).value;
  slot.object.store(make(handle, context), std::memory_order_relaxed);
  slot.handle.store(handle, std::memory_order_release);
  return handle;
}

void* find_word_handle(uint64_t handle, HandleKind kind) {
  const Slot* slot = live_slot(handle, kind);
  return slot ? slot->object.load(std::memory_order_relaxed) : nullptr;
}

void* end_word_handle(uint64_t handle, HandleKind kind) {
  const std::lock_guard lock(mutex);
  void* const object = end_object(handle, kind);
  if (object) free_word(handle);
  return object;
}

void* end_but_for_word(uint64_t handle, HandleKind kind) {
  const std::lock_guard lock(mutex);
  return end_object(handle, kind);
}

void end_word(uint64_t handle) {
  const std::lock_guard lock(mutex);
  free_word(handle);
}

uint64_t mint_handle(HandleKind kind) {
  OfKind& all = kinds[static_cast<size_t>(kind) % std::size(kinds)];
  const std::lock_guard lock(all.mutex);
  uint32_t index = 0;
  if (!all.free.empty()) {
    index = all.free.back();
    all.free.pop_back();
  } else if (all.generations.size() + 1 < kMaxObjects) {
    all.generations.push_back(0);
    index = static_cast<uint32_t>(all.generations.size());
    watch(all.usage, index, kMaxObjects, plural(kind));
  } else {
    watch(all.usage, kMaxObjects, kMaxObjects, plural(kind));
    return 0;
  }
  return Handle::make(kind, index, ++all.generations[index - 1]).value;
}

void end_handle(uint64_t handle) {
  const Handle h{handle};
  OfKind& all = kinds[static_cast<size_t>(h.kind()) % std::size(kinds)];
  const std::lock_guard lock(all.mutex);
  // Another object of this value would be possible otherwise.
  if (h.generation() < kMaxGeneration) all.free.push_back(h.index());
}

uint64_t last_handle(HandleKind kind, uint32_t index) {
  OfKind& all = kinds[static_cast<size_t>(kind) % std::size(kinds)];
  const std::lock_guard lock(all.mutex);
  if (index == 0 || index > all.generations.size()) return 0;
  return Handle::make(kind, index, all.generations[index - 1]).value;
}

}  // namespace pyft::client
