#include "core/transfer.h"

#include <cstring>
#include <memory>

#include "core/device.h"
#include "core/pointers.h"

namespace softgpu {
namespace {

Fault unmapped(const char* what, uint64_t address, uint64_t bytes) {
  char text[128];
  std::snprintf(text, sizeof text, "a %s of [%llu] bytes at [0x%llx] touches unmapped memory", what,
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address));
  return {FaultKind::kIllegalAddress, text};
}

void copy_rows(uint64_t dst, uint64_t src, const CopyShape& shape) {
  for (uint64_t row = 0; row < shape.rows; ++row) {
    std::memmove(reinterpret_cast<void*>(dst + row * shape.dst_pitch),
                 reinterpret_cast<const void*>(src + row * shape.src_pitch), shape.width);
  }
}

// The GPU side must still be mapped when the stream gets there; the pageable side is the caller's.
struct Side {
  uint64_t address, span;
  bool known;  // device or pinned
};

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

cudaError_t copy(const std::shared_ptr<Stream>& stream, uint64_t dst, uint64_t src,
                 const CopyShape& shape, cudaMemcpyKind kind, bool synchronous) {
  if (shape.width == 0 || shape.rows == 0) return cudaSuccess;
  if (!dst || !src) return cudaErrorInvalidValue;
  if (shape.rows > 1 && (shape.dst_pitch < shape.width || shape.src_pitch < shape.width)) {
    return cudaErrorInvalidPitchValue;
  }
  const auto dst_info = pointers().find(dst), src_info = pointers().find(src);
  const Side to{dst, shape.dst_span(), dst_info.has_value()};
  const Side from{src, shape.src_span(), src_info.has_value()};
  if (const cudaError_t bad = check_kind(kind, dst_info, src_info); bad != cudaSuccess) return bad;
  if ((to.known && !pointers().covers(dst, to.span)) ||
      (from.known && !pointers().covers(src, from.span))) {
    return cudaErrorInvalidValue;
  }
  const bool wait = synchronous || !to.known;
  Work work;
  if (!from.known && !wait) {
    CopyShape packed = shape;
    packed.src_pitch = shape.width;
    const auto snapshot = std::make_shared_for_overwrite<uint8_t[]>(shape.width * shape.rows);
    const auto base = reinterpret_cast<uint64_t>(snapshot.get());
    copy_rows(base, src, {shape.width, shape.rows, shape.width, shape.src_pitch});
    work.run = [to, packed, base, snapshot]() -> Fault {
      if (!pointers().covers(to.address, to.span)) return unmapped("copy", to.address, to.span);
      copy_rows(to.address, base, packed);
      return {};
    };
  } else {
    work.run = [to, from, shape]() -> Fault {
      for (const Side& side : {to, from}) {
        if (side.known && !pointers().covers(side.address, side.span)) {
          return unmapped("copy", side.address, side.span);
        }
      }
      copy_rows(to.address, from.address, shape);
      return {};
    };
  }
  Device& owner = device(stream->device);
  owner.scheduler().submit(stream, std::move(work));
  if (!wait) return cudaSuccess;
  owner.scheduler().wait_stream(*stream);
  return owner.sticky();
}

cudaError_t fill(const std::shared_ptr<Stream>& stream, uint64_t dst, const FillShape& shape) {
  if (shape.width == 0 || shape.rows == 0) return cudaSuccess;
  const uint64_t row_bytes = shape.width * shape.element_bytes;
  if (shape.rows > 1 && shape.pitch < row_bytes) return cudaErrorInvalidPitchValue;
  const uint64_t span = (shape.rows - 1) * shape.pitch + row_bytes;
  if (!pointers().covers(dst, span) || dst % shape.element_bytes) return cudaErrorInvalidValue;
  Work work;
  work.run = [dst, span, shape]() -> Fault {
    if (!pointers().covers(dst, span)) return unmapped("memset", dst, span);
    for (uint64_t row = 0; row < shape.rows; ++row) {
      fill_row(reinterpret_cast<uint8_t*>(dst + row * shape.pitch), shape);
    }
    return {};
  };
  device(stream->device).scheduler().submit(stream, std::move(work));
  return cudaSuccess;
}

}  // namespace softgpu
