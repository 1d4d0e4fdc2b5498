#include "client/memory/copy.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "api/commands.h"
#include "client/device/capture.h"
#include "client/device/past_caches.h"

namespace pyft::client {
namespace {

// Of large copies: while the client copies one piece, the server copies the one before. What comes
// back is read out of the cache, and there are four places for it.
constexpr size_t kPieceToDevice = size_t{1} << 20, kPieceToHost = size_t{256} << 10;
constexpr size_t kLargeBytes = size_t{8} << 20;  // more than a core's own caches hold

enum class Place { kPageable, kPinned, kDevice };

// Where an address lies as the server of `device` sees it: pinned memory of another device's
// window is pageable to it.
Place place_of(uint64_t address, size_t bytes, const Device& device, Device** owner) {
  if (Device* found = device_of_address(address)) {
    *owner = found;
    return Place::kDevice;
  }
  *owner = device_of_pinned(address, bytes);
  return *owner == &device ? Place::kPinned : Place::kPageable;
}

// The journal keeps what a stream reads of page-locked memory, and what it has written there. A
// graph does both at each launch, and so does the replay of one.
void announce_captured(const Stream& stream) {
  if (stream.capture.load() && stream.device.writer().unreplayable())
    say("a graph has captured copies from or to page-locked memory, or fills of it: what its "
        "launches read and write there is in no log, so that from here on a replay may come to "
        "other values");
}

cudaError_t write_device(Stream& stream, uint64_t dst, const std::byte* src, size_t bytes) {
  const size_t chunk = std::min<size_t>(stream.device.writer().max_payload_bytes(), kPieceToDevice);
  const auto how = bytes >= kLargeBytes ? PayloadCopy::kPastCaches : PayloadCopy::kCached;
  for (size_t at = 0; at < bytes; at += chunk) {
    const size_t n = std::min(chunk, bytes - at);
    const cmd::pyftWriteDevice body{stream.handle, dst + at};
    const cudaError_t error = stream.device.send(static_cast<uint16_t>(Call::pyftWriteDevice),
                                                 bytes_of(body), {}, {src + at, n}, how);
    if (error != cudaSuccess) return error;
    stream.device.touch(stream);
  }
  return cudaSuccess;
}

// Up to four chunks are under way: while the client copies one out, the server fills the others.
cudaError_t read_device(Stream& stream, std::byte* dst, uint64_t src, size_t bytes) {
  struct Chunk {
    uint64_t value, offset;
    std::byte* dst;
    size_t bytes;
  };
  Device& device = stream.device;
  const std::lock_guard lock(device.bounce_mutex);
  const size_t limit = std::min<size_t>(device.channel().bounce_bytes() / 4, kPieceToHost);
  const bool large = bytes >= kLargeBytes;
  std::deque<Chunk> flying;
  const auto land = [&]() -> cudaError_t {
    const Chunk chunk = flying.front();
    flying.pop_front();
    const cudaError_t error = device.wait(stream.word, chunk.value);
    const std::byte* landed = device.channel().bounce() + chunk.offset;
    if (error != cudaSuccess) return error;
    if (large)
      copy_past_caches(chunk.dst, landed, chunk.bytes);
    else
      std::memcpy(chunk.dst, landed, chunk.bytes);
    return cudaSuccess;
  };
  size_t slot = 0;
  for (size_t at = 0; at < bytes; at += limit, slot = (slot + 1) % 4) {
    if (flying.size() == 4)
      if (const cudaError_t error = land(); error != cudaSuccess) return error;
    Chunk chunk{0, slot * limit, dst + at, std::min(limit, bytes - at)};
    cudaError_t error =
        device.send(Call::pyftReadDevice,
                    cmd::pyftReadDevice{stream.handle, src + at, chunk.bytes, chunk.offset});
    if (error != cudaSuccess) return error;
    device.touch(stream);
    error = device.fence(stream, &chunk.value);
    if (error != cudaSuccess) return error;
    flying.push_back(chunk);
  }
  while (!flying.empty())
    if (const cudaError_t error = land(); error != cudaSuccess) return error;
  return device.synchronize(stream);
}

// Host to host, in stream order.
cudaError_t host_copy(Stream& stream, uint64_t dst, uint64_t src, size_t bytes) {
  const cudaError_t error = stream.device.synchronize(stream);
  if (error != cudaSuccess) return error;
  std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes);
  return cudaSuccess;
}

// Every device has its own server, so the bytes pass through this process.
cudaError_t copy_between_devices(Stream& stream, Device& to, uint64_t dst, Device& from,
                                 uint64_t src, size_t bytes) {
  std::vector<std::byte> staging(std::min<size_t>(bytes, size_t{64} << 20));
  Stream& reader = &from == &stream.device ? stream : from.null_stream();
  Stream& writer = &to == &stream.device ? stream : to.null_stream();
  if (const cudaError_t error = stream.device.synchronize(stream); error != cudaSuccess)
    return error;
  for (size_t at = 0; at < bytes; at += staging.size()) {
    const size_t n = std::min(staging.size(), bytes - at);
    cudaError_t error = read_device(reader, staging.data(), src + at, n);
    if (error == cudaSuccess) error = write_device(writer, dst + at, staging.data(), n);
    if (error != cudaSuccess) return error;
  }
  return to.synchronize(writer);
}

}  // namespace

cudaError_t copy(uint64_t dst, uint64_t src, size_t bytes, cudaStream_t handle, bool blocking) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  if (!stream) return error;
  if (bytes == 0) return stream->device.health();
  if (!dst || !src) return cudaErrorInvalidValue;
  Device* dst_owner = nullptr;
  Device* src_owner = nullptr;
  const Place to = place_of(dst, bytes, stream->device, &dst_owner);
  const Place from = place_of(src, bytes, stream->device, &src_owner);
  if (to == Place::kDevice && from == Place::kDevice && dst_owner != src_owner)
    return copy_between_devices(*stream, *dst_owner, dst, *src_owner, src, bytes);
  // Memory of another device than the stream's: use that device's null stream, then it is done.
  Device* owner = to == Place::kDevice ? dst_owner : from == Place::kDevice ? src_owner : nullptr;
  if (owner && owner != &stream->device) {
    error = stream->device.synchronize(*stream);
    if (error != cudaSuccess) return error;
    stream = &owner->null_stream();
    blocking = true;
  }
  // A graph reads its sources again at every launch: pageable memory is not in the server's reach.
  const bool pageable = to == Place::kPageable || from == Place::kPageable;
  const bool on_host = to != Place::kDevice && from != Place::kDevice;
  if (stream->capture.load() && (blocking || pageable || on_host)) return check_wait(*stream);
  if (on_host) return host_copy(*stream, dst, src, bytes);
  if (from == Place::kPageable)
    return write_device(*stream, dst, reinterpret_cast<const std::byte*>(src), bytes);
  if (to == Place::kPageable)
    return read_device(*stream, reinterpret_cast<std::byte*>(dst), src, bytes);
  const bool host = to == Place::kPinned || from == Place::kPinned;
  if (host) announce_captured(*stream);
  error = stream->device.send(Call::cudaMemcpyAsync,
                              cmd::cudaMemcpyAsync{stream->handle, dst, src, bytes});
  stream->device.touch(*stream);
  return error == cudaSuccess && blocking && host ? stream->device.synchronize(*stream) : error;
}

cudaError_t copy_2d(const Copy2D& job, cudaStream_t handle, bool blocking) {
  if (job.width > job.dst_pitch || job.width > job.src_pitch) return cudaErrorInvalidPitchValue;
  if (job.width == 0 || job.height == 0) return cudaSuccess;
  if (job.height == 1) return copy(job.dst, job.src, job.width, handle, blocking);
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  if (!stream) return error;
  const uint64_t dst_bytes = job.dst_pitch * (job.height - 1) + job.width;
  const uint64_t src_bytes = job.src_pitch * (job.height - 1) + job.width;
  Device* dst_owner = nullptr;
  Device* src_owner = nullptr;
  const Place to = place_of(job.dst, dst_bytes, stream->device, &dst_owner);
  const Place from = place_of(job.src, src_bytes, stream->device, &src_owner);
  const bool here = (to != Place::kDevice || dst_owner == &stream->device) &&
                    (from != Place::kDevice || src_owner == &stream->device);
  if (!here || to == Place::kPageable || from == Place::kPageable) {
    for (uint64_t row = 0; row < job.height; ++row) {
      error = copy(job.dst + row * job.dst_pitch, job.src + row * job.src_pitch, job.width, handle,
                   blocking);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }
  if (to == Place::kPinned || from == Place::kPinned) announce_captured(*stream);
  error =
      stream->device.send(Call::cudaMemcpy2DAsync,
                          cmd::cudaMemcpy2DAsync{stream->handle, job.dst, job.dst_pitch, job.src,
                                                 job.src_pitch, job.width, job.height});
  stream->device.touch(*stream);
  return error == cudaSuccess && blocking ? stream->device.synchronize(*stream) : error;
}

cudaError_t fill(uint64_t dst, uint32_t value, uint32_t element_bytes, uint64_t count,
                 cudaStream_t handle) {
  return fill_2d(dst, 0, value, element_bytes, count, 1, handle);
}

cudaError_t fill_2d(uint64_t dst, uint64_t pitch, uint32_t value, uint32_t element_bytes,
                    uint64_t width, uint64_t height, cudaStream_t handle) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  if (!stream) return error;
  if (width == 0 || height == 0) return stream->device.health();
  const uint64_t bytes = (height - 1) * pitch + width * element_bytes;
  Device* owner = device_of_address(dst);
  const bool pinned = !owner;
  if (pinned) owner = device_of_pinned(dst, bytes);
  if (!owner) return cudaErrorInvalidValue;
  if (owner != &stream->device) {
    error = stream->device.synchronize(*stream);
    if (error != cudaSuccess) return error;
    stream = &owner->null_stream();
  }
  if (pinned) announce_captured(*stream);
  error = height == 1
              ? owner->send(Call::cudaMemsetAsync,
                            cmd::cudaMemsetAsync{stream->handle, dst, value, element_bytes, width})
              : owner->send(Call::cudaMemset2DAsync,
                            cmd::cudaMemset2DAsync{stream->handle, dst, pitch, value, element_bytes,
                                                   width, height});
  owner->touch(*stream);
  return error;
}

}  // namespace pyft::client
