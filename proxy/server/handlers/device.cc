#include <algorithm>

#include "server/handlers/handlers.h"

namespace pyft::server {

Status do_cudaGetDeviceProperties(Session& session, const EntryHeader& header,
                                  const cmd::cudaGetDeviceProperties& c, Body, Body) {
  cudaDeviceProp prop{};
  const int code = session.backend().cudaGetDeviceProperties(&prop, session.ordinal(c.device));
  static_assert(sizeof prop <= ring::kReplyInlineBytes);
  return finish(session, header, "cudaGetDeviceProperties", Domain::kCuda, code, nullptr, 0,
                std::as_bytes(std::span(&prop, 1)));
}

// All attributes at once; those the device does not know read as zero.
Status do_cudaDeviceGetAttribute(Session& session, const EntryHeader& header,
                                 const cmd::cudaDeviceGetAttribute& c, Body, Body) {
  constexpr uint32_t kMost = ring::kReplyInlineBytes / sizeof(int32_t);
  if (c.count > kMost || c.first > kMost)
    return Status::broken("cudaDeviceGetAttribute asks for [" + std::to_string(c.count) +
                          "] values");
  std::vector<int32_t> values(c.count, 0);
  for (uint32_t i = 0; i < c.count; ++i) {
    int value = 0;
    const auto id = static_cast<cudaDeviceAttr>(c.first + i);
    if (c.first + i > 0 && c.first + i < CU_DEVICE_ATTRIBUTE_MAX &&
        session.backend().cudaDeviceGetAttribute(&value, id, session.ordinal(c.device)) ==
            cudaSuccess)
      values[i] = value;
  }
  return finish(session, header, "cudaDeviceGetAttribute", Domain::kCuda, 0, nullptr, 0,
                std::as_bytes(std::span(values)));
}

}  // namespace pyft::server
