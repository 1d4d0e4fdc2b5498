// How fast the host's part of snapshots and restores is on a real GPU: the driver of this bench
// copies and hashes in no time. Beside it stands memcpy between the same pieces and as much memory.
// Prints one JSON object: of each run GB/s, and GB per second of all its threads' processor time.
//
//   copies_bench [MB] [runs]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "alive.h"
#include "api/mock_table.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/memory/stage.h"
#include "checkpoint/resources/device_memory.h"
#include "fake_device.h"
#include "recovery/object.h"
#include "server/recovery/session_device.h"

namespace {

using namespace pyft;  // NOLINT: a bench

constexpr uint64_t kBlock = uint64_t{24} << 20, kPiece = uint64_t{2} << 20;
constexpr uint64_t kFirst = uint64_t{1} << 44;
constexpr uint64_t kSeed = 5;

const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
    t.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
    t.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream) { return CUDA_SUCCESS; };
    t.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream) {
      return CUDA_SUCCESS;
    };
    t.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      *stream = reinterpret_cast<CUstream>(1);
      return CUDA_SUCCESS;
    };
    t.cuEventCreate = [](CUevent* event, unsigned) {
      *event = reinterpret_cast<CUevent>(1);
      return CUDA_SUCCESS;
    };
    t.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    t.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    t.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    t.cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
    t.cuStreamQuery = [](CUstream) { return CUDA_SUCCESS; };
    return t;
  }();
  return made;
}

// All of its memory is zero, as the pieces are that nothing is copied to.
class Gpu : public server::DriverMemory {
 public:
  Gpu(server::Session& session, server::DeviceCopies& copies)
      : DriverMemory(session, copies, checkpoint::DigestKey(kSeed)) {}
  bool hashes() const override { return true; }
  int digests(std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out) override {
    for (const checkpoint::MemoryRange& range : ranges)
      *out++ = checkpoint::zero_digest(range.bytes, key);
    return 0;
  }
  int read_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                  const checkpoint::TakeDigest& hashed) override {
    std::deque<uint64_t> ranges;
    uint64_t done = 0;
    const auto next_range = [&](checkpoint::MemoryRange* range) {
      const bool more = next(range);
      if (more) ranges.push_back(range->bytes);
      return more;
    };
    const auto take_piece = [&](const std::byte* piece, uint64_t bytes) {
      take(piece, bytes);
      if ((done += bytes) < ranges.front()) return;
      hashed(checkpoint::zero_digest(ranges.front(), key));
      ranges.pop_front();
      done = 0;
    };
    return read(next_range, take_piece);
  }
  checkpoint::DigestKey key{kSeed};
};

// On a machine that does other things as well only processor time tells anything.
struct Rate {
  double gb_s = 0, gb_cpu_s = 0;
};

class Watch {
 public:
  Rate rate(uint64_t bytes) const {
    const auto many = static_cast<double>(bytes);
    return {many / static_cast<double>(now(CLOCK_MONOTONIC) - began_),
            many / static_cast<double>(now(CLOCK_PROCESS_CPUTIME_ID) - cpu_)};
  }

 private:
  static int64_t now(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return t.tv_sec * 1'000'000'000 + t.tv_nsec;
  }
  const int64_t began_ = now(CLOCK_MONOTONIC), cpu_ = now(CLOCK_PROCESS_CPUTIME_ID);
};

// From one piece to all memory, or to it, in so many threads.
Rate copy(std::byte* memory, uint64_t bytes, bool down, unsigned threads) {
  const Watch watch;
  std::vector<std::jthread> all;
  for (unsigned i = 0; i < threads; ++i)
    all.emplace_back([=] {
      std::vector<std::byte> pieces(4 * kPiece);
      for (uint64_t at = i * kPiece, n = 0; at + kPiece <= bytes; at += threads * kPiece, ++n) {
        std::byte* const piece = pieces.data() + n % 4 * kPiece;
        down ? std::memcpy(piece, memory + at, kPiece) : std::memcpy(memory + at, piece, kPiece);
      }
    });
  all.clear();
  return watch.rate(bytes);
}

void fail(const std::string& problem) {
  if (problem.empty()) return;
  std::fprintf(stderr, "copies_bench: %s\n", problem.c_str());
  std::exit(1);
}

struct Runs {
  const char* name;
  std::vector<Rate> rates;
};

void print(const std::vector<Runs>& all) {
  std::printf("{");
  for (const Runs& one : all) {
    std::printf("%s\"%s\": [", &one == all.data() ? "" : ", ", one.name);
    for (size_t i = 0; i < one.rates.size(); ++i)
      std::printf("%s[%.2f, %.2f]", i ? ", " : "", one.rates[i].gb_s, one.rates[i].gb_cpu_s);
    std::printf("]");
  }
  std::printf("}\n");
}

class Bench {
 public:
  explicit Bench(uint64_t bytes)
      : bytes_(bytes), object_(2 * bytes + (uint64_t{64} << 20) + recovery_test::kBeforeHeap) {
    ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
    std::string error;
    channel_ = ring::Channel::create(shape, &error);
    fail(error);
    for (uint64_t at = 0, i = 0; at + kBlock <= bytes; ++i) {
      blocks_.push_back({kFirst + at, kBlock - 16 * i});  // equal contents are kept once
      at += kBlock;
    }
    for (const checkpoint::MemoryRange& block : blocks_)
      for (const auto kind : {ring::DigestKind::kNh})
        checkpoint::zero_digest(block.bytes, {kSeed, kind});
  }
  void run(int runs, std::vector<Runs>* all) {
    server::Session session(*channel_, &table(), alive_, device_);
    server::DeviceCopies copies(session, true);
    Gpu gpu(session, copies);
    for (int i = 0; i < runs; ++i) one_run(gpu, all);
  }

 private:
  void one_run(Gpu& gpu, std::vector<Runs>* all) {
    const recovery_test::Object object(object_);
    std::string error;
    const auto store = object.open(&error);
    fail(error);
    fail(store->set_digests(ring::DigestKind::kNh));
    gpu.key = store->digest_key();
    std::vector<ring::Digest> warm(blocks_.size());
    gpu.digests(blocks_, warm.data());
    checkpoint::Stage stage(*store, gpu);
    for (size_t i = 0; i < 2; ++i) {  // new pages, and pages that are there
      const Watch watch;
      fail(stage.add(blocks_, false));
      (*all)[i].rates.push_back(watch.rate(bytes_));
      if (i == 0) store->drop_open();
    }
    if (!store->publish({}, {})) fail(store->problem());
    const Watch watch;
    checkpoint::RemoteBlocks none;
    fail(checkpoint::restore_memory(channel_->control(), *store, gpu, none));
    (*all)[2].rates.push_back(watch.rate(bytes_));
  }

  const uint64_t bytes_, object_;
  AlwaysAlive alive_;
  FakeDevice device_;
  std::unique_ptr<ring::Channel> channel_;
  std::vector<checkpoint::MemoryRange> blocks_;
};

}  // namespace

int main(int argc, char** argv) {
  const uint64_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000) * 1'000'000;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 7;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Runs> all = {{"snapshot_new_pages", {}}, {"snapshot", {}},  {"restore", {}},
                           {"memcpy_up_1", {}},        {"memcpy_up", {}}, {"memcpy_down_1", {}},
                           {"memcpy_down", {}}};
  Bench(bytes / kBlock * kBlock).run(runs, &all);
  std::vector<std::byte> memory(bytes, std::byte{1});
  for (int i = 0; i < runs; ++i)
    for (size_t down = 0; down < 2; ++down) {
      all[3 + 2 * down].rates.push_back(copy(memory.data(), bytes, down, 1));
      all[4 + 2 * down].rates.push_back(copy(memory.data(), bytes, down, cores));
    }
  print(all);
}
