#include "core/fault_injection.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "core/device.h"

namespace softgpu {
namespace {

struct Request {
  unsigned long long launch = 0;  // 0: none
  int error = 0;
};

Request read_request() {
  Request request;
  const char* text = std::getenv("SOFTGPU_FAULT");
  if (!text || !*text) return request;
  const bool parsed = std::sscanf(text, "%llu:%d", &request.launch, &request.error) == 2;
  if (!parsed || fault_kind(request.error) == FaultKind::kNone) {
    std::fprintf(stderr, "softgpu: [SOFTGPU_FAULT] is [%s], not <launch>:<CUDA error>\n", text);
    return {};
  }
  return request;
}

}  // namespace

FaultKind fault_kind(int cuda_error) {
  for (const FaultKind kind :
       {FaultKind::kIllegalAddress, FaultKind::kMisalignedAddress, FaultKind::kIllegalInstruction,
        FaultKind::kAssert, FaultKind::kLaunchTimeout, FaultKind::kDeviceTrap}) {
    if (fault_code(kind) == cuda_error) return kind;
  }
  return FaultKind::kNone;
}

Fault injected_fault() {
  static const Request request = read_request();
  static std::atomic<unsigned long long> launches{0};
  if (request.launch == 0 || ++launches != request.launch) return {};
  return {fault_kind(request.error), "fault [" + std::to_string(request.error) +
                                         "] was asked for at kernel launch [" +
                                         std::to_string(request.launch) + "]"};
}

}  // namespace softgpu
