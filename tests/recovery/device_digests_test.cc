// The kernel of the digests, run by the soft GPU, gives what the host computes; and what becomes of
// a device that cannot do it.
#include "server/digest/device_digests.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend/cuda_libraries.h"
#include "check.h"
#include "checkpoint/bytes_passed.h"
#include "fake_device.h"
#include "recovery/server.h"
#include "server/recovery/session_device.h"

namespace {

using namespace pyft;  // NOLINT: a test
using checkpoint::MemoryRange;
using server::DeviceDigests;

constexpr uint64_t kSeed = 77;
constexpr size_t kBytes = size_t{24} << 20;

// Entered once: contexts stay.
backend::Table& driver() {
  static backend::Table table = [] {
    backend::Table made;
    const char* const library = std::getenv("SOFTGPU_LIBRARY");
    CHECK(library && backend::fill_from(library, &made, backend::Library::cuda).empty());
    CUdevice device = 0;
    CUcontext context = nullptr;
    CHECK_EQ(made.cuInit(0), 0);
    CHECK_EQ(made.cuDeviceGet(&device, 0), 0);
    CHECK_EQ(made.cuDevicePrimaryCtxRetain(&context, device), 0);
    CHECK_EQ(made.cuCtxSetCurrent(context), 0);
    return made;
  }();
  return table;
}

// Memory that the device and the test see at one address.
std::byte* memory() {
  static std::byte* const shared = [] {
    void* const made =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(made != MAP_FAILED);
    CHECK_EQ(driver().cuMemHostRegister_v2(made, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP), 0);
    auto* const bytes = static_cast<std::byte*>(made);
    uint64_t state = 1;
    for (size_t i = 0; i < kBytes; ++i)
      bytes[i] = static_cast<std::byte>((state = state * 6364136223846793005u + 1) >> 56);
    return bytes;
  }();
  return shared;
}

std::unique_ptr<DeviceDigests> make(const backend::Table& table, std::string* why) {
  return DeviceDigests::make(table, 0, kSeed, server::digest_images(), why);
}

std::unique_ptr<DeviceDigests> working() {
  std::string why;
  auto made = make(driver(), &why);
  CHECK_EQ(why, "");
  return made;
}

void compare(DeviceDigests& device, const std::vector<MemoryRange>& ranges) {
  std::vector<ring::Digest> got(ranges.size());
  CHECK_EQ(device.compute(ranges, got.data()), 0);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto* const at = reinterpret_cast<const std::byte*>(ranges[i].address);
    const ring::Digest wanted = checkpoint::nh_digest(at, ranges[i].bytes, kSeed);
    if (got[i] != wanted)
      std::cerr << ranges[i].bytes << " bytes at " << ranges[i].address % 65536 << "\n";
    CHECK(got[i] == wanted);
  }
}

TEST(lengths_and_places) {
  const auto device = working();
  const auto base = reinterpret_cast<uint64_t>(memory());
  std::vector<MemoryRange> ranges;
  for (const uint64_t shift : {0u, 16u, 512u, 1u, 3u, 8u, 4095u})
    for (const uint64_t bytes :
         {0u, 1u, 4u, 15u, 16u, 17u, 511u, 512u, 513u, 5000u, 65535u, 65536u, 65552u, 140'001u})
      ranges.push_back({base + shift, bytes});
  compare(*device, ranges);
}

// More than a warp reads, and, by number, more than a launch takes.
TEST(large_and_many) {
  const auto device = working();
  const auto base = reinterpret_cast<uint64_t>(memory());
  compare(*device, {{base, kBytes}, {base + 16, kBytes - 31}});
  std::vector<MemoryRange> many;
  for (uint64_t i = 0; i < 40'000; ++i) many.push_back({base + 64 * i, i % 100});
  many.push_back({base, 1 << 20});
  compare(*device, many);
}

// So much that a warp gets two tiles.
TEST(slices_of_several_tiles) {
  const auto device = working();
  const auto base = reinterpret_cast<uint64_t>(memory());
  std::vector<MemoryRange> ranges(45, MemoryRange{base, kBytes});
  ranges[7] = {base + 16, kBytes - 100'000};
  uint64_t tiles = 0;
  for (const MemoryRange& range : ranges) tiles += range.bytes / checkpoint::kTileBytes;
  CHECK_EQ(checkpoint::slice_tiles(tiles), 2u);
  std::vector<ring::Digest> got(ranges.size());
  CHECK_EQ(device->compute(ranges, got.data()), 0);
  const auto wanted = [](const MemoryRange& range) {
    return checkpoint::nh_digest(reinterpret_cast<const void*>(range.address), range.bytes, kSeed);
  };
  const ring::Digest whole = wanted(ranges[0]), part = wanted(ranges[7]);
  for (size_t i = 0; i < ranges.size(); ++i) CHECK(got[i] == (i == 7 ? part : whole));
}

TEST(changes_are_seen) {
  const auto device = working();
  const MemoryRange range{reinterpret_cast<uint64_t>(memory()), 100'000};
  ring::Digest before{}, after{};
  const uint64_t passed = checkpoint::bytes_passed;
  CHECK_EQ(device->compute({&range, 1}, &before), 0);
  CHECK(checkpoint::bytes_passed > passed);
  memory()[77'777] ^= std::byte{4};
  CHECK_EQ(device->compute({&range, 1}, &after), 0);
  CHECK(before != after);
}

TEST(what_is_in_the_way_is_named) {
  std::string why;
  CHECK(!DeviceDigests::make(driver(), 0, kSeed, {}, &why));
  CHECK_EQ(why, "there was no NVRTC when pyft was built");

  backend::Table table = driver();
  table.cuModuleLoadData = [](CUmodule*, const void*) { return CUDA_ERROR_NO_BINARY_FOR_GPU; };
  CHECK(!make(table, &why));
  CHECK_EQ(why, "[cuModuleLoadData] fails with code [209]");
  table.cuModuleLoadData = nullptr;
  CHECK(!make(table, &why));
  CHECK_EQ(why, "the driver lacks a function");

  table = driver();
  const auto device = make(table, &why);
  CHECK(device != nullptr);
  table.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**,
                            void**) { return CUDA_ERROR_NOT_SUPPORTED; };
  const MemoryRange range{reinterpret_cast<uint64_t>(memory()), 10};
  ring::Digest digest{};
  CHECK_EQ(device->compute({&range, 1}, &digest), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(std::string(device->failed()), "cuLaunchKernel");
  CHECK(!make(table, &why));
  CHECK_EQ(why, "[cuLaunchKernel] fails with code [801]");
}

int launches = 0, launch_code = 0, status = 0;

CUresult failing_launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void**, void**) {
  ++launches;
  return static_cast<CUresult>(launch_code);
}

// A launch that a healthy device refuses is tried once; the error of a failed one is an error.
TEST(the_session_falls_back_or_fails) {
  backend::Table table = driver();
  recovery_test::Bench bench;
  AlwaysAlive alive;
  FakeDevice device;
  device.on_status = [] { return status; };
  server::Session session(*bench.channel, &table, alive, device);
  const checkpoint::DigestKey key(kSeed, ring::DigestKind::kNh);
  server::DeviceCopies copies(session, false);
  CHECK(!server::DriverMemory(session, copies, kSeed).hashes());
  server::DriverMemory on_device(session, copies, key);
  CHECK(on_device.hashes());
  table.cuLaunchKernel = failing_launch;
  const MemoryRange range{reinterpret_cast<uint64_t>(memory()), 10};
  ring::Digest digest{};
  launch_code = status = 700;
  CHECK_EQ(on_device.digests({&range, 1}, &digest), 700);
  launch_code = 801;
  status = 600;
  CHECK_EQ(on_device.digests({&range, 1}, &digest), checkpoint::kNotOnDevice);
  CHECK_EQ(on_device.digests({&range, 1}, &digest), checkpoint::kNotOnDevice);
  CHECK_EQ(launches, 2);
  table.cuModuleLoadData = nullptr;
  CHECK(!server::DriverMemory(session, copies, key).hashes());
}

TEST(pieces_are_hashed_on_their_way_to_the_host) {
  recovery_test::Bench bench;
  AlwaysAlive alive;
  FakeDevice device;
  server::Session session(*bench.channel, &driver(), alive, device);
  server::DeviceCopies copies(session, true);
  copies.hash_by(working());
  const auto base = reinterpret_cast<uint64_t>(memory());
  const MemoryRange ranges[] = {{base, 5'000'003}, {base + 7, 100}, {base + 64, 65'536}};
  std::vector<std::byte> got;
  size_t asked = 0, told = 0;
  const auto next = [&](MemoryRange* range) {
    if (asked == std::size(ranges)) return false;
    *range = ranges[asked++];
    return true;
  };
  const auto take = [&](const std::byte* piece, uint64_t bytes) {
    got.insert(got.end(), piece, piece + bytes);
  };
  const auto hashed = [&](const ring::Digest& digest) {
    const auto* const at = reinterpret_cast<const std::byte*>(ranges[told].address);
    CHECK_EQ(got.size(), ranges[told].bytes);
    CHECK(std::equal(got.begin(), got.end(), at));
    CHECK(digest == checkpoint::nh_digest(at, ranges[told++].bytes, kSeed));
    got.clear();
  };
  CHECK_EQ(copies.read_hashed(next, take, hashed), 0);
  CHECK_EQ(told, std::size(ranges));
}

TEST(who_can_look_at_the_memory_uses_xxh3) {
  backend::Extras extras;
  CHECK(server::digest_kind(extras) == ring::DigestKind::kNh);
  setenv("PYFT_DEVICE_DIGEST", "0", 1);
  CHECK(server::digest_kind(extras) == ring::DigestKind::kXxh3);
  unsetenv("PYFT_DEVICE_DIGEST");
  extras.view = [](unsigned long long, unsigned long long) -> const void* { return nullptr; };
  CHECK(server::digest_kind(extras) == ring::DigestKind::kXxh3);
}

TEST(the_image_that_fits) {
  const server::KernelImage images[] = {{0, nullptr, 1}, {80, nullptr, 1}, {86, nullptr, 1}};
  const auto chosen = [&](int architecture) {
    return server::image_for(architecture, images)->architecture;
  };
  CHECK_EQ(chosen(80), 80);
  CHECK_EQ(chosen(86), 86);
  CHECK_EQ(chosen(89), 86);
  CHECK_EQ(chosen(75), 0);
  CHECK_EQ(chosen(130), 0);
  CHECK(!server::image_for(75, std::span(images).subspan(1)));
}

}  // namespace

CHECK_MAIN
