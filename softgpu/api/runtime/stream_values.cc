// Words in memory that streams write and wait for.
#include <atomic>
#include <memory>

#include "api/support.h"
#include "memory/pointers.h"
#include "stream/operation.h"
#include "work/perform.h"

namespace api = softgpu::api;
using softgpu::Fault;
using softgpu::FaultKind;
using softgpu::LibraryOperation;
using StreamPointer = std::shared_ptr<softgpu::Stream>;

namespace {

template <class Value>
std::atomic_ref<Value> word_at(uint64_t address) {
  return std::atomic_ref<Value>(*reinterpret_cast<Value*>(address));
}

template <class Value>
CUresult write_value(CUstream stream, uint64_t address, Value value) {
  if (address % sizeof(Value) || !softgpu::pointers().covers(address, sizeof(Value))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return api::driver_result(api::with_stream(stream, [&](const StreamPointer& s) {
    return softgpu::perform(
        s, LibraryOperation{"write value", [address, value]() -> Fault {
                              if (!softgpu::pointers().writable(address, sizeof(Value))) {
                                return {FaultKind::kIllegalAddress,
                                        "a stream write value touches memory that is unmapped or "
                                        "read-only"};
                              }
                              // Release: a thread that sees the value also sees what the stream
                              // wrote before it.
                              word_at<Value>(address).store(value, std::memory_order_release);
                              return {};
                            }});
  }));
}

template <class Value>
bool reached(Value current, Value wanted, unsigned mode) {
  switch (mode) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<Value>>(current - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return current == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (current & wanted) != 0;
    default:
      return static_cast<Value>(~(current | wanted)) != 0;
  }
}

// The memory may go while the stream waits: then the wait is over, and the device has failed.
template <class Value>
softgpu::PollOperation wait_operation(uint64_t address, Value value, unsigned mode) {
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  const auto poll = [address, value, mode, gone] {
    bool found = false;
    const bool mapped = softgpu::pointers().with_mapped(address, sizeof(Value), [&] {
      found = reached<Value>(word_at<Value>(address).load(std::memory_order_acquire), value, mode);
    });
    if (!mapped) gone->store(true, std::memory_order_relaxed);
    return found || !mapped;
  };
  return {poll, [gone]() -> Fault {
            if (!gone->load(std::memory_order_relaxed)) return {};
            return {FaultKind::kIllegalAddress, "a stream wait value touches unmapped memory"};
          }};
}

template <class Value>
CUresult wait_value(CUstream stream, uint64_t address, Value value, unsigned flags) {
  if (address % sizeof(Value) || !softgpu::pointers().covers(address, sizeof(Value))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return api::driver_result(api::with_stream(stream, [&](const StreamPointer& s) {
    return softgpu::perform(s, wait_operation<Value>(address, value, flags & 3));
  }));
}

}  // namespace

SOFTGPU_API CUresult cuStreamWriteValue32_v2(CUstream s, CUdeviceptr address, cuuint32_t value,
                                             unsigned) {
  return write_value<uint32_t>(s, address, value);
}

SOFTGPU_API CUresult cuStreamWriteValue64_v2(CUstream s, CUdeviceptr address, cuuint64_t value,
                                             unsigned) {
  return write_value<uint64_t>(s, address, value);
}

SOFTGPU_API CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr address, cuuint32_t value,
                                            unsigned flags) {
  return wait_value<uint32_t>(s, address, value, flags);
}

SOFTGPU_API CUresult cuStreamWaitValue64_v2(CUstream s, CUdeviceptr address, cuuint64_t value,
                                            unsigned flags) {
  return wait_value<uint64_t>(s, address, value, flags);
}
