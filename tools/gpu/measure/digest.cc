// Digests of device memory, computed there: how fast beside copying it to the host, and that host
// and device have the same bits.
#include "checkpoint/digest/nh.h"
#include "server/digest/images.h"

#include <cstring>

#include "driver.h"

namespace measure {

namespace {

using namespace pyft::checkpoint;  // NOLINT: what is measured
using namespace pyft::server;      // NOLINT

constexpr uint64_t kSeed = 20;

size_t slice_bytes(size_t bytes) {
  return slice_tiles(bytes / kTileBytes) * kTileBytes;
}

double gb_per_s(size_t bytes, double us) {
  return static_cast<double>(bytes) / us / 1e3;
}

template <class F>
double rate(size_t bytes, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const double began = now_us();
    f();
    times.push_back(now_us() - began);
  }
  return gb_per_s(bytes, median(times));
}

CUfunction load_digest_kernel(CUdevice device) {
  const int architecture = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                           attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  const KernelImage* const image = image_for(architecture, digest_images());
  if (!image) skip("there is no kernel: NVRTC is needed to compile it");
  CUmodule module = nullptr;
  const double began = now_us();
  check(DRIVER(cuModuleLoadData)(&module, image->bytes), "cuModuleLoadData");
  const CUfunction found = kernel(module, PYFT_DIGEST_KERNEL);
  figure("load", now_us() - began, "us");
  return found;
}

// Table and results, where the server has them: in host memory.
void* shared_memory(size_t bytes) {
  void* memory = nullptr;
  check(DRIVER(cuMemHostAlloc)(&memory, bytes, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
  return memory;
}

KernelArgument argument_for(const NhKey& key, CUdeviceptr address, size_t bytes) {
  KernelArgument argument{};
  std::memcpy(argument.key, key.units.data(), sizeof argument.key);
  std::memcpy(argument.power, key.powers.data(), sizeof argument.power);
  for (unsigned column = 0; column < kColumns; ++column)
    argument.column_power[column] = key.powers[column * kPasses + 1];
  argument.tile_power = key.tile_power();
  const size_t part = slice_bytes(bytes);
  argument.count = static_cast<unsigned>(bytes / part);
  auto* const slices = static_cast<Slice*>(shared_memory(argument.count * sizeof(Slice)));
  for (unsigned i = 0; i < argument.count; ++i) slices[i] = {address + i * part, part};
  argument.slices = slices;
  argument.sums = static_cast<Number*>(shared_memory(argument.count * sizeof(Number)));
  return argument;
}

void compare(const NhKey& key, const KernelArgument& argument, CUdeviceptr address, size_t bytes) {
  NhSum sum(key);
  for (unsigned i = 0; i < argument.count; ++i)
    sum.add(argument.sums[i], slice_bytes(bytes) / kTileBytes);
  std::vector<std::byte> copy(bytes);
  const auto fetch = [&] {
    check(DRIVER(cuMemcpyDtoH)(copy.data(), address, bytes), "cuMemcpyDtoH");
  };
  figure("copy_pageable", rate(bytes, fetch), "GB/s");
  pyft::ring::Digest here{};
  figure("host", rate(bytes, [&] { here = nh_digest(copy.data(), bytes, kSeed); }), "GB/s");
  if (here != sum.digest(bytes)) fail("the device's digest of its memory is not the host's");
}

void fill(CUdeviceptr address, size_t bytes) {
  constexpr size_t kPiece = size_t{1} << 20;
  std::vector<uint32_t> piece(kPiece / sizeof(uint32_t));
  uint32_t state = 1;
  for (size_t at = 0; at < bytes; at += kPiece) {
    for (uint32_t& word : piece) word = state = state * 1664525 + 1013904223;
    check(DRIVER(cuMemcpyHtoD)(address + at, piece.data(), kPiece), "cuMemcpyHtoD");
  }
}

}  // namespace

// The argument is the size in MiB.
void digest(const std::string& argument) {
  const CUdevice device = open_device();
  const size_t bytes = std::stoull(argument) << 20;
  const CUfunction function = load_digest_kernel(device);
  const Mapping memory = map_memory(device, bytes);
  fill(memory.address, bytes);
  const NhKey key(kSeed);
  KernelArgument work = argument_for(key, memory.address, bytes);
  CUstream stream = nullptr;
  check(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const auto run = [&] {
    void* parameters[] = {&work};
    const unsigned blocks = (work.count + kWarpsPerBlock - 1) / kWarpsPerBlock;
    check(DRIVER(cuLaunchKernel)(function, blocks, 1, 1, 32 * kWarpsPerBlock, 1, 1, 0, stream,
                                 parameters, nullptr),
          "cuLaunchKernel");
    check(DRIVER(cuStreamSynchronize)(stream), "cuStreamSynchronize");
  };
  run();
  figure("device", rate(bytes, run), "GB/s");
  compare(key, work, memory.address, bytes);
}

}  // namespace measure
