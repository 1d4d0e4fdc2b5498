// What the loader hands to the executor: an entry function, and one launch of it.
//
// Contract between loader/ and api/ (which make Kernel and Launch) and exec/ (which runs them).
#ifndef SOFTGPU_CORE_KERNEL_H_
#define SOFTGPU_CORE_KERNEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/placement.h"
#include "softgpu.h"

// The executor is a library of its own, compiled for several instruction sets.
#define SOFTGPU_OF_EXECUTOR [[gnu::visibility("default")]]

namespace softgpu {

class AddressSpace;
struct EventState;  // stream.h
struct Program;     // exec/: lowered instructions of one kernel, built at its first launch

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct KernelParam {
  uint16_t offset = 0;  // from the start of the parameter area
  uint16_t size = 0;
};

// One entry function of a loaded cubin. Immutable after loading, except for the lazily built
// program. The spans point into the module's image, which outlives the kernel.
struct Kernel {
  std::string name;               // mangled
  std::span<const uint8_t> text;  // SASS, kInstrBytes each
  uint32_t entry = 0;             // where the kernel begins in it, in bytes
  uint32_t register_count = 0;
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;  // per thread (MIN_STACK_SIZE)
  uint32_t max_threads = 1024;
  uint32_t param_base = 0x160;  // of bank 0
  uint32_t param_bytes = 0;
  std::vector<KernelParam> params;  // by ordinal
  // Constant banks 2 (literals), 3 (__constant__), 4 (address table, relocated). Bank 0 is made
  // per launch. Bank 3 is device memory of the module: content may change between launches.
  std::array<std::span<const uint8_t>, 8> banks;
  // Attribute values that a launch may be checked against; set by cudaFuncSetAttribute.
  uint32_t max_dynamic_shared_bytes = 48 * 1024;

  mutable std::once_flag program_once;
  mutable std::shared_ptr<const Program> program;
  mutable std::string program_error;  // why the program could not be built
};

// Magic code addresses of the functions that kernels call outside their own text. They fit into
// the 49 bits of a call instruction.
inline constexpr uint64_t kSyscallFirst = 0x17fff'00000000;
inline constexpr uint64_t kSyscallVprintf = kSyscallFirst + 0x10;
inline constexpr uint64_t kSyscallAssertfail = kSyscallFirst + 0x20;
inline constexpr uint64_t kSyscallMalloc = kSyscallFirst + 0x30;
inline constexpr uint64_t kSyscallFree = kSyscallFirst + 0x40;

// Device memory that malloc of kernels hands out.
struct DeviceHeap {
  uint64_t address = 0, bytes = 0;
};

struct Launch {
  const Kernel* kernel = nullptr;
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  std::vector<uint8_t> params;  // kernel->param_bytes packed bytes
  bool cooperative = false;     // all blocks resident: blocks take turns
  uint32_t stack_bytes = 0;     // cudaLimitStackSize
  int device = 0;
  DeviceHeap (*heap)(int device) = nullptr;  // asked when a kernel calls malloc or free
};

enum class FaultKind : uint16_t {
  kNone,
  kIllegalAddress,
  kMisalignedAddress,
  kIllegalInstruction,
  kAssert,
  kLaunchTimeout,
  kDeviceTrap,
  // What no program causes; asked for by fault_injection.h.
  kDeviceLost,
  kEccUncontained,
  kEccContained,
  kCode = 1000,  // + any CUDA error number
};

// A fault that is reported as this CUDA error.
constexpr FaultKind code_fault(int cuda_error) {
  return static_cast<FaultKind>(static_cast<int>(FaultKind::kCode) + cuda_error);
}

// Why a launch stopped. `message` is one sentence with kernel, block, thread, pc and address; the
// executor prints nothing itself.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  std::string message;
  // Without a fault: nothing has run yet, the work is to be run again after this event.
  std::shared_ptr<EventState> until = {};
  explicit operator bool() const { return kind != FaultKind::kNone; }
};

struct LaunchStats {
  uint64_t warp_instructions = 0;
};

// Runs a launch to its end on the calling thread (helper threads allowed inside as long as results
// do not depend on them). Deterministic: same memory and launch give the same bits.
// Never throws, never crashes on a bad program: a bad access is a Fault.
SOFTGPU_OF_EXECUTOR Fault run_kernel(const Launch& launch, const Sms& sms, AddressSpace& memory,
                                     LaunchStats* stats);

// Bytes a kernel may use at most: checks `program` can be built, and returns the reason if not.
SOFTGPU_OF_EXECUTOR std::string prepare_kernel(const Kernel& kernel);

// What it is compiled for, as glibc calls it: x86-64, x86-64-v3 (AVX2), x86-64-v4 (AVX-512).
SOFTGPU_OF_EXECUTOR const char* instruction_set();

// Where the executor's own lines go (log.h).
SOFTGPU_OF_EXECUTOR void log_from_executor(softgpu_log_t function);

}  // namespace softgpu

#endif  // SOFTGPU_CORE_KERNEL_H_
