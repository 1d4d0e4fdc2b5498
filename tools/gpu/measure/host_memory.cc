// Host memory that the device reads and writes where it lies: pinned windows and completion words.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "driver.h"

namespace measure {

namespace {

constexpr uint64_t kPinnedWindow = 0x16a0'0000'0000;  // proxy/ring/layout.h
constexpr size_t kBytes = size_t{256} << 20;

std::byte* shared_memory(size_t bytes, uint64_t address, bool huge) {
  const int fd = memfd_create("measure", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail("no memory object");
  const int fixed = address ? MAP_FIXED_NOREPLACE : 0;
  void* const at = mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | fixed, fd, 0);
  if (at == MAP_FAILED || (address && at != reinterpret_cast<void*>(address)))
    fail("the memory object cannot be mapped at its address");
  if (huge) madvise(at, bytes, MADV_HUGEPAGE);
  std::memset(at, 1, bytes);
  close(fd);
  return static_cast<std::byte*>(at);
}

// GB/s of page-locking; the device's address of the memory comes back.
double lock(std::byte* memory, size_t bytes, CUdeviceptr* address) {
  const double began = now_us();
  check(DRIVER(cuMemHostRegister)(memory, bytes,
                                  CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister");
  const double took = now_us() - began;
  check(DRIVER(cuMemHostGetDevicePointer)(address, memory, 0), "cuMemHostGetDevicePointer");
  return static_cast<double>(bytes) / took / 1e3;
}

double copy_rate(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const double began = now_us();
    check(DRIVER(cuMemcpyAsync)(to, from, bytes, nullptr), "cuMemcpyAsync");
    check(DRIVER(cuStreamSynchronize)(nullptr), "cuStreamSynchronize");
    times.push_back(now_us() - began);
  }
  return static_cast<double>(bytes) / median(times) / 1e3;
}

void read_by_kernel(CUdeviceptr source, size_t bytes) {
  const CUfunction sum = kernel(load_kernels(), "sum_bytes");
  CUdeviceptr result = 0;
  check(DRIVER(cuMemAlloc)(&result, 8), "cuMemAlloc");
  check(DRIVER(cuMemsetD8)(result, 0, 8), "cuMemsetD8");
  uint64_t count = bytes, got = 0;
  void* parameters[] = {&source, &count, &result};
  check(DRIVER(cuLaunchKernel)(sum, 1, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr),
        "cuLaunchKernel");
  check(DRIVER(cuMemcpyDtoH)(&got, result, 8), "cuMemcpyDtoH");
  if (got != bytes)
    fail("a kernel sums [" + std::to_string(got) + "] over [" + std::to_string(bytes) +
         "] bytes of ones in registered memory");
}

}  // namespace

void registered(const std::string& argument) {
  const CUdevice device = open_device();
  const bool huge = argument == "huge";
  std::byte* const memory = shared_memory(kBytes, kPinnedWindow, huge);
  CUdeviceptr address = 0;
  figure("register", lock(memory, kBytes, &address), "GB/s");
  if (address != reinterpret_cast<uint64_t>(memory) ||
      !attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM))
    fail("the device does not use the host's addresses for registered memory");
  CUdeviceptr other = 0;
  check(DRIVER(cuMemAlloc)(&other, kBytes), "cuMemAlloc");
  figure("h2d_registered", copy_rate(other, address, kBytes), "GB/s");
  figure("d2h_registered", copy_rate(address, other, kBytes), "GB/s");
  read_by_kernel(address, 1 << 20);
  const double began = now_us();
  check(DRIVER(cuMemHostUnregister)(memory), "cuMemHostUnregister");
  figure("unregister", now_us() - began, "us");
}

// How long after cuStreamWriteValue64 the host sees the word, and what a host function takes.
void words(const std::string&) {
  const CUdevice device = open_device();
  if (!attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
    fail("streams cannot write 64-bit words: completion words need it");
  std::byte* const memory = shared_memory(1 << 20, 0, false);
  CUdeviceptr address = 0;
  lock(memory, 1 << 20, &address);
  auto* const word = new (memory) std::atomic<uint64_t>(0);
  CUstream stream = nullptr;
  check(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  std::vector<double> written, enqueue, called;
  for (uint64_t i = 1; i <= 1000; ++i) {
    const double began = now_us();
    check(DRIVER(cuStreamWriteValue64)(stream, address, i, 0), "cuStreamWriteValue64");
    enqueue.push_back(now_us() - began);
    while (word->load(std::memory_order_acquire) != i) continue;
    written.push_back(now_us() - began);
  }
  static std::atomic<uint64_t> calls{0};
  for (uint64_t i = 1; i <= 1000; ++i) {
    const double began = now_us();
    const auto count = [](void*) { calls.fetch_add(1); };
    check(DRIVER(cuLaunchHostFunc)(stream, count, nullptr), "cuLaunchHostFunc");
    while (calls.load() != i) continue;
    called.push_back(now_us() - began);
  }
  figure("write_value", median(written), "us");
  figure("write_value_enqueue", median(enqueue), "us");
  figure("host_function", median(called), "us");
}

}  // namespace measure
