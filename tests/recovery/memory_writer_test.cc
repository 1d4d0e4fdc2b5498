// Contents that are written into a device's memory in one or several threads: all of them, once,
// and whatever the device does not have then is named.
#include "checkpoint/memory/memory_writer.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "check.h"
#include "recovery/memory.h"
#include "ring/wait.h"

namespace {

using namespace recovery_test;  // NOLINT: a test
using checkpoint::BlockContent;
using checkpoint::MemoryWriter;

const checkpoint::DigestKey kKey(7);

std::vector<std::byte> noise(uint64_t bytes, unsigned seed) {
  std::vector<std::byte> made(bytes);
  std::minstd_rand next(seed);
  for (std::byte& one : made) one = static_cast<std::byte>(next() >> 8);
  return made;
}

// A device that these threads write, and that the host looks at, or that hashes, or neither.
struct Device {
  enum class Kind { kLooksAt, kHashes, kReadsBack };
  Device(Kind kind, unsigned threads) : fake(memory.calls(kind == Kind::kLooksAt)) {
    fake.calls.threads = threads;
    if (kind == Kind::kHashes)
      fake.calls.digests = [this](std::span<const checkpoint::MemoryRange> ranges,
                                  ring::Digest* out) {
        ++hashed;
        for (const checkpoint::MemoryRange& range : ranges)
          *out++ =
              checkpoint::digest(reinterpret_cast<const void*>(range.address), range.bytes, kKey);
        return 0;
      };
    fake.calls.write = [this](uint64_t address, const std::byte* from, uint64_t bytes) {
      const std::lock_guard lock(mutex);
      if (fails_at && address <= fails_at && fails_at < address + bytes) return 700;
      written += bytes;
      std::memcpy(reinterpret_cast<void*>(address), from, bytes);
      if (address <= spoils && spoils < address + bytes)
        *reinterpret_cast<std::byte*>(spoils) ^= std::byte{1};
      return 0;
    };
    for (const uint64_t bytes : {1u, 70'000u, 0u, 20'000'001u, 8u << 20, 5u, 16u << 20}) {
      contents.push_back(noise(bytes, static_cast<unsigned>(contents.size()) + 1));
      memory.allocate(bytes, 0);
    }
    for (size_t i = 0; i < contents.size(); ++i) {
      const auto& content = contents[i];
      const auto at = reinterpret_cast<uint64_t>(memory.blocks[i].data());
      plan.push_back(
          {{at, content.size(), checkpoint::digest(content.data(), content.size(), kKey), 0},
           content.data()});
    }
  }
  MemoryWriter::Outcome write() {
    MemoryWriter writer(fake, kKey, patience_ns);
    return writer.write(
        plan, [this](const ring::ManifestBlock& block) { begun.push_back(block.address); });
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& content : contents) sum += content.size();
    return sum;
  }
  Memory memory;
  Fake fake;
  std::mutex mutex;
  std::vector<std::vector<std::byte>> contents;
  std::vector<BlockContent> plan;
  std::vector<uint64_t> begun;
  uint64_t written = 0, hashed = 0, fails_at = 0, spoils = 0;
  uint64_t patience_ns = MemoryWriter::kPatienceNs;
};

// The threads beside the one that writes: how many have come, and gone.
struct Others {
  explicit Others(Device* device) {
    device->fake.calls.enter = [this] {
      struct Here {
        ~Here() { ++*gone; }
        std::atomic<unsigned>* gone;
      };
      thread_local const Here here{&gone};
      static_cast<void>(here);
      ++come;
    };
  }
  bool leave(unsigned count) const {
    const uint64_t until = ring::now_ns() + 10'000'000'000;
    while ((come < count || gone < count) && ring::now_ns() < until) std::this_thread::yield();
    return gone == count;
  }
  std::atomic<unsigned> come{0}, gone{0};
};

template <class Test>
void with_each_device(const Test& test) {
  using enum Device::Kind;
  for (const auto kind : {kLooksAt, kHashes, kReadsBack})
    for (const unsigned threads : {1u, 2u, 4u}) {
      Device device(kind, threads);
      test(device);
    }
}

TEST(all_is_written_once) {
  with_each_device([](Device& device) {
    const auto outcome = device.write();
    CHECK_EQ(outcome.code, 0);
    CHECK(outcome.wrong.empty());
    CHECK(device.memory.blocks == device.contents);
    CHECK_EQ(device.written, device.bytes());
    CHECK_EQ(device.begun.size(), device.contents.size());
    CHECK_EQ(std::set(device.begun.begin(), device.begun.end()).size(), device.contents.size());
    CHECK(device.hashed <= 1);
  });
}

// In the store, and on the way.
TEST(what_the_device_does_not_have_is_named) {
  with_each_device([](Device& device) {
    device.contents[1][69'999] ^= std::byte{4};
    device.spoils = device.plan[3].block.address + 19'999'999;
    device.contents[6][0] ^= std::byte{4};
    const auto outcome = device.write();
    CHECK_EQ(outcome.code, 0);
    CHECK(outcome.wrong == (std::vector<size_t>{1, 3, 6}));
  });
}

TEST(a_device_that_fails_ends_it) {
  with_each_device([](Device& device) {
    device.fails_at = device.plan[3].block.address + 1000;
    const auto outcome = device.write();
    CHECK_EQ(outcome.code, 700);
    CHECK_EQ(std::string(outcome.failed), "writing memory");
    CHECK(device.written < device.bytes());
  });
}

TEST(a_device_that_cannot_be_read_back_is_no_success) {
  Device device(Device::Kind::kReadsBack, 1);
  device.fake.calls.read = [](const auto&, const auto&) { return 719; };
  const auto outcome = device.write();
  CHECK_EQ(outcome.code, 719);
  CHECK_EQ(std::string(outcome.failed), "hashing what was restored");
}

// Nothing is left out: the thread that writes looks at the rest by itself.
TEST(a_write_that_stands_still_is_not_waited_for) {
  Device device(Device::Kind::kLooksAt, 4);
  device.patience_ns = 1'000'000;
  device.spoils = device.plan[6].block.address;
  Others others(&device);
  const auto write = device.fake.calls.write;
  device.fake.calls.write = [&](uint64_t address, const std::byte* from, uint64_t bytes) {
    if (address == device.plan[3].block.address) CHECK(others.leave(3));
    return write(address, from, bytes);
  };
  const auto outcome = device.write();
  CHECK_EQ(outcome.code, 0);
  CHECK(outcome.wrong == std::vector<size_t>{6});
}

TEST(what_ends_the_thread_that_writes_ends_the_others) {
  Device device(Device::Kind::kLooksAt, 4);
  Others others(&device);
  device.fake.calls.write = [](auto...) -> int { throw std::runtime_error("no memory"); };
  bool thrown = false;
  try {
    device.write();
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  CHECK(thrown);
  CHECK(others.leave(3));
}

TEST(nothing_to_write_asks_nothing_of_the_device) {
  Device device(Device::Kind::kHashes, 4);
  device.plan.clear();
  CHECK_EQ(device.write().code, 0);
  CHECK_EQ(device.hashed, 0u);
}

}  // namespace

CHECK_MAIN
