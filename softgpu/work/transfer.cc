#include "work/transfer.h"

#include <cstring>
#include <memory>

#include "device/device.h"
#include "device/fault_injection.h"
#include "graph/capture.h"
#include "memory/pointers.h"
#include "stream/operation.h"
#include "work/activity.h"
#include "work/perform.h"

namespace softgpu {
namespace {

Fault refused(const char* what, uint64_t address, uint64_t bytes, const char* why) {
  char text[128];
  std::snprintf(text, sizeof text, "a %s of [%llu] bytes at [0x%llx] %s", what,
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address),
                why);
  return {FaultKind::kIllegalAddress, text};
}

Fault check_read(const char* what, uint64_t address, uint64_t bytes) {
  if (pointers().covers(address, bytes)) return {};
  return refused(what, address, bytes, "touches unmapped memory");
}

Fault check_write(const char* what, uint64_t address, uint64_t bytes) {
  if (pointers().writable(address, bytes)) return {};
  const bool read_only = pointers().covers(address, bytes);
  return refused(what, address, bytes,
                 read_only ? "writes read-only memory" : "touches unmapped memory");
}

void copy_rows(uint64_t dst, uint64_t src, const CopyShape& shape) {
  for (uint64_t slice = 0; slice < shape.slices; ++slice) {
    const uint64_t to = dst + slice * shape.dst_slice, from = src + slice * shape.src_slice;
    for (uint64_t row = 0; row < shape.rows; ++row) {
      std::memmove(reinterpret_cast<void*>(to + row * shape.dst_pitch),
                   reinterpret_cast<const void*>(from + row * shape.src_pitch), shape.width);
    }
  }
}

// The GPU side must still be mapped when the stream gets there; the pageable side is the caller's.
Fault run_copy(const CopyOperation& c) {
  Fault fault;
  if (c.dst_known) fault = check_write("copy", c.dst, c.shape.dst_span());
  if (c.src_known && !fault) fault = check_read("copy", c.src, c.shape.src_span());
  if (fault) return fault;
  copy_rows(c.dst, c.src, c.shape);
  const CopyShape& s = c.shape;
  copy_made({c.dst, s.width, s.rows, s.dst_pitch, s.slices, s.dst_slice}, c.src);
  return {};
}

cudaError_t check_kind(cudaMemcpyKind kind, const std::optional<PointerInfo>& dst,
                       const std::optional<PointerInfo>& src) {
  const auto is_device = [](const auto& info) { return info && !info->is_host(); };
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return cudaSuccess;
    case cudaMemcpyHostToDevice:
      return dst ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToHost:
      return src ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToDevice:
      // Pinned memory is as good as device memory to a GPU.
      return (dst && src) || (is_device(dst) && is_device(src)) ? cudaSuccess
                                                                : cudaErrorInvalidValue;
  }
  return cudaErrorInvalidMemcpyDirection;
}

void fill_row(uint8_t* row, const FillShape& shape) {
  if (shape.element_bytes == 1) {
    std::memset(row, static_cast<int>(shape.value), shape.width);
    return;
  }
  for (uint64_t i = 0; i < shape.width; ++i) {
    std::memcpy(row + i * shape.element_bytes, &shape.value, shape.element_bytes);
  }
}

}  // namespace

cudaError_t check_copy(CopyOperation* c) {
  const CopyShape& shape = c->shape;
  if (!c->dst || !c->src) return cudaErrorInvalidValue;
  if (shape.rows > 1 && (shape.dst_pitch < shape.width || shape.src_pitch < shape.width)) {
    return cudaErrorInvalidPitchValue;
  }
  const auto dst_info = pointers().find(c->dst), src_info = pointers().find(c->src);
  c->dst_known = dst_info.has_value();
  c->src_known = src_info.has_value();
  if (const cudaError_t bad = check_kind(c->kind, dst_info, src_info); bad != cudaSuccess) {
    return bad;
  }
  if ((c->dst_known && !pointers().covers(c->dst, shape.dst_span())) ||
      (c->src_known && !pointers().covers(c->src, shape.src_span()))) {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

Work copy_work(const std::shared_ptr<const CopyOperation>& operation) {
  Work work;
  work.run = [operation] { return run_copy(*operation); };
  return work;
}

// The same copy from a snapshot of its pageable source.
static Work snapshot_work(CopyOperation c) {
  const CopyShape& s = c.shape;
  const uint64_t bytes = s.width * s.rows * s.slices;
  const auto snapshot = std::make_shared_for_overwrite<uint8_t[]>(bytes);
  const auto base = reinterpret_cast<uint64_t>(snapshot.get());
  copy_rows(base, c.src,
            {s.width, s.rows, s.width, s.src_pitch, s.slices, s.width * s.rows, s.src_slice});
  c.src = base;
  c.shape.src_pitch = s.width;
  c.shape.src_slice = s.width * s.rows;
  Work work;
  work.bytes = bytes;
  work.run = [c, snapshot] { return run_copy(c); };
  return work;
}

cudaError_t copy(const std::shared_ptr<Stream>& stream, uint64_t dst, uint64_t src,
                 const CopyShape& shape, cudaMemcpyKind kind, bool synchronous) {
  if (shape.empty()) return cudaSuccess;
  CopyOperation c{dst, src, shape, kind};
  if (const cudaError_t bad = check_copy(&c); bad != cudaSuccess) return bad;
  if (synchronous) {
    if (const cudaError_t bad = check_stream_wait(*stream); bad != cudaSuccess) return bad;
  }
  if (const auto captured = capture_operation(stream, c, nullptr)) return *captured;
  const bool wait = synchronous || !c.dst_known;
  if (wait) {
    if (const cudaError_t bad = check_stream_wait(*stream); bad != cudaSuccess) return bad;
  }
  Scheduler& scheduler = device(stream->device).scheduler();
  const bool by_return = wait || !c.src_known;  // has read the source, which is the caller's again
  Work at_once;
  at_once.run = [&c] { return run_copy(c); };
  record_activity(c, *stream, &at_once);
  if (!by_return || !scheduler.run_if_idle(*stream, at_once.run)) {
    Work later = c.src_known || wait ? copy_work(std::make_shared<const CopyOperation>(c))
                                     : snapshot_work(c);
    record_activity(c, *stream, &later);
    scheduler.submit(stream, std::move(later));
  }
  if (!wait) return cudaSuccess;
  scheduler.wait_stream(*stream);  // remembers that the host has, too
  return device(stream->device).sticky();
}

cudaError_t check_fill(const FillOperation& operation) {
  const FillShape& shape = operation.shape;
  const uint64_t row_bytes = shape.width * shape.element_bytes;
  if (shape.rows > 1 && shape.pitch < row_bytes) return cudaErrorInvalidPitchValue;
  const bool covered = pointers().covers(operation.dst, shape.span());
  return covered && operation.dst % shape.element_bytes == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

Work fill_work(const FillOperation& operation) {
  Work work;
  work.run = [dst = operation.dst, shape = operation.shape]() -> Fault {
    if (Fault fault = check_write("memset", dst, shape.span())) return fault;
    for (uint64_t row = 0; row < shape.rows; ++row) {
      fill_row(reinterpret_cast<uint8_t*>(dst + row * shape.pitch), shape);
    }
    return {};
  };
  return work;
}

cudaError_t fill(const std::shared_ptr<Stream>& stream, uint64_t dst, const FillShape& shape) {
  if (shape.width == 0 || shape.rows == 0) return cudaSuccess;
  const FillOperation operation{dst, shape};
  if (const cudaError_t bad = check_fill(operation); bad != cudaSuccess) return bad;
  return perform(stream, operation);
}

}  // namespace softgpu
