#include "profiling/buffers.h"

#include <cstring>

namespace profiling {

void Buffers::set_callbacks(Request request, Complete complete) {
  const std::lock_guard lock(mutex_);
  request_ = request;
  complete_ = complete;
}

bool Buffers::has_callbacks() {
  const std::lock_guard lock(mutex_);
  return request_ && complete_;
}

void Buffers::give_back(const Buffer& buffer, Complete complete) {
  if (buffer.bytes && complete) complete(nullptr, 0, buffer.bytes, buffer.size, buffer.used);
}

void Buffers::put(const void* record, size_t bytes) {
  Buffer full;
  Complete complete = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!filling_.takes(bytes)) {
      full = filling_;
      complete = complete_;
      filling_ = {};
      if (request_) request_(&filling_.bytes, &filling_.size, &filling_.most);
    }
    if (filling_.takes(bytes)) {
      std::memcpy(filling_.bytes + filling_.used, record, bytes);
      filling_.used += bytes;
      ++filling_.count;
    } else {
      drop(1);
    }
  }
  give_back(full, complete);
}

void Buffers::flush() {
  Buffer full;
  Complete complete = nullptr;
  {
    const std::lock_guard lock(mutex_);
    full = filling_;
    complete = complete_;
    filling_ = {};
  }
  give_back(full, complete);
}

size_t record_bytes(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    default:
      return 0;
  }
}

CUptiResult next_record(uint8_t* buffer, size_t valid, CUpti_Activity** record) {
  if (!buffer || !record) return CUPTI_ERROR_INVALID_PARAMETER;
  size_t at = 0;
  if (*record) {
    at = static_cast<size_t>(reinterpret_cast<uint8_t*>(*record) - buffer);
    if (at >= valid) return CUPTI_ERROR_INVALID_PARAMETER;
    at += record_bytes((*record)->kind);
  }
  if (at + sizeof(CUpti_Activity) > valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* next = reinterpret_cast<CUpti_Activity*>(buffer + at);
  const size_t bytes = record_bytes(next->kind);
  if (!bytes || at + bytes > valid) return CUPTI_ERROR_INVALID_KIND;
  *record = next;
  return CUPTI_SUCCESS;
}

}  // namespace profiling
