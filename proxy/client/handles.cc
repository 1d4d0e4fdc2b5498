#include "client/handles.h"

#include <atomic>
#include <mutex>
#include <vector>

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

Slot* live_slot(uint64_t handle, HandleKind kind) {
  const Handle h{handle};
  if (h.kind() != kind || h.index() >= ring::kCompletionWords) return nullptr;
  Slot& slot = slots[h.index()];
  return slot.handle.load(std::memory_order_acquire) == handle ? &slot : nullptr;
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
  } else {
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
  Slot* slot = live_slot(handle, kind);
  if (!slot) return nullptr;
  slot->handle.store(0, std::memory_order_release);
  free_indexes.push_back(Handle{handle}.index());
  return slot->object.exchange(nullptr);
}

uint64_t mint_handle(HandleKind kind) {
  static std::atomic<uint32_t> counters[16];
  const uint32_t index = 1 + counters[static_cast<size_t>(kind) & 15].fetch_add(1);
  return Handle::make(kind, index, 1).value;
}

}  // namespace pyft::client
