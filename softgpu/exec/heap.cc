#include "exec/heap.h"

namespace softgpu::exec {
namespace {

// Before each block, in address order without gaps.
struct Header {
  uint64_t bytes;  // to the next header; 0: the heap is new
  uint64_t used;
};
static_assert(sizeof(Header) == 16);

Header* header_at(uint64_t address) {
  return reinterpret_cast<Header*>(address);
}

// A kernel that writes beyond its block damages headers; a walk must end nevertheless.
bool sound(const DeviceHeap& heap, uint64_t at) {
  const uint64_t left = heap.address + heap.bytes - at, bytes = header_at(at)->bytes;
  return bytes >= sizeof(Header) && bytes % sizeof(Header) == 0 && bytes <= left;
}

// Makes one block of this free one and the free ones behind it.
void merge(const DeviceHeap& heap, uint64_t at) {
  const uint64_t end = heap.address + heap.bytes;
  Header* header = header_at(at);
  for (uint64_t next = at + header->bytes; next < end; next = at + header->bytes) {
    if (header_at(next)->used || !sound(heap, next)) return;
    header->bytes += header_at(next)->bytes;
  }
}

void take(uint64_t at, uint64_t wanted) {
  Header* header = header_at(at);
  if (header->bytes > wanted) *header_at(at + wanted) = {header->bytes - wanted, 0};
  *header = {wanted, 1};
}

}  // namespace

uint64_t heap_allocate(const DeviceHeap& heap, uint64_t bytes) {
  if (!heap.bytes || !bytes || bytes > heap.bytes) return 0;
  const uint64_t wanted = (bytes + 2 * sizeof(Header) - 1) / sizeof(Header) * sizeof(Header);
  if (!header_at(heap.address)->bytes) *header_at(heap.address) = {heap.bytes, 0};
  const uint64_t end = heap.address + heap.bytes;
  for (uint64_t at = heap.address; at < end && sound(heap, at); at += header_at(at)->bytes) {
    if (header_at(at)->used) continue;
    merge(heap, at);
    if (header_at(at)->bytes < wanted) continue;
    take(at, wanted);
    return at + sizeof(Header);
  }
  return 0;
}

bool heap_free(const DeviceHeap& heap, uint64_t address) {
  const uint64_t end = heap.address + heap.bytes;
  if (!heap.bytes || !header_at(heap.address)->bytes) return false;
  for (uint64_t at = heap.address; at < end && sound(heap, at); at += header_at(at)->bytes) {
    if (at + sizeof(Header) != address) continue;
    const bool used = header_at(at)->used != 0;
    header_at(at)->used = 0;
    return used;
  }
  return false;
}

}  // namespace softgpu::exec
