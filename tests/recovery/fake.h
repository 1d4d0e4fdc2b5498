// The device, the agent and the other ranks of a server under test: whatever a test has set a
// function for, and else what the interfaces do by themselves.
#ifndef PYFT_TESTS_RECOVERY_FAKE_H_
#define PYFT_TESTS_RECOVERY_FAKE_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/device.h"
#include "checkpoint/ranks.h"
#include "checkpoint/resources/communicators.h"

namespace recovery_test {

using namespace pyft;  // NOLINT: a test

// Named as the functions of the interfaces.
struct FakeCalls {
  std::function<int(const checkpoint::NextRange&, const checkpoint::TakePiece&)> read, read_beside;
  std::function<int(const checkpoint::NextRange&, const checkpoint::TakePiece&,
                    const checkpoint::TakeDigest&)>
      read_hashed, read_beside_hashed;
  std::function<int(uint64_t, const std::byte*, uint64_t)> write;
  std::function<const std::byte*(uint64_t, uint64_t)> view;
  std::function<int(std::span<const checkpoint::MemoryRange>, ring::Digest*)> digests;
  std::function<bool(uint64_t, uint64_t)> untouched;
  std::function<bool(uint64_t, std::byte*, uint64_t)> peek;
  std::function<bool()> ready_beside, capturing, waits, log_pressure, work;
  std::function<void()> enter;
  std::function<uint64_t(uint64_t)> allocate;
  std::function<void(uint64_t)> release;
  std::function<int(uint64_t, uint64_t, uint64_t)> duplicate;
  std::function<int()> duplicated, idle;
  std::function<void(std::vector<checkpoint::MemoryRange>*)> mapped;
  std::function<std::string()> out_of_reach;
  std::function<void(std::vector<ring::ManifestPlace>*)> hidden;
  std::function<bool(uint64_t cut)> acknowledged;
  std::function<void(uint64_t cuts)> tell_pace;
  std::function<uint64_t()> pace_of_others, progress;
  std::function<void(uint64_t step, uint64_t offset, uint64_t seq)> staged;
  std::function<void(uint64_t step, uint64_t seq)> prepared;
  std::function<void(uint64_t step)> request_decision;
  std::function<const std::byte*(const ring::ManifestBlock&, std::string*)> remote;
  std::function<const std::byte*(const ring::ManifestBlock&)> likely_remote;
  std::function<std::string(std::span<const ring::ManifestBlock>, checkpoint::BlockCheck&,
                            std::vector<bool>*)>
      from_peers;
  unsigned threads = 1;
};

struct Fake : checkpoint::DeviceMemory,
              checkpoint::DeviceState,
              checkpoint::BackgroundReads,
              checkpoint::OwnMemory,
              checkpoint::Placement,
              checkpoint::AgentChannel,
              checkpoint::CommunicatorState,
              checkpoint::RemoteBlocks {
  explicit Fake(FakeCalls calls = {}) : calls(std::move(calls)) {}
  // As the functions are set now.
  checkpoint::Device device() {
    return {*this, *this, calls.peek || calls.read_beside ? this : nullptr,
            calls.allocate ? this : nullptr};
  }

  int read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) override {
    return calls.read(next, take);
  }
  int read_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                  const checkpoint::TakeDigest& hashed) override {
    return calls.read_hashed ? calls.read_hashed(next, take, hashed)
                             : DeviceMemory::read_hashed(next, take, hashed);
  }
  int write(const checkpoint::NextContent& next) override {
    int code = 0;
    for (checkpoint::Content one; !code && next(&one);)
      code = calls.write(one.address, one.from, one.bytes);
    return code;
  }
  unsigned threads() override { return calls.threads; }
  bool views() const override { return static_cast<bool>(calls.view); }
  const std::byte* view(uint64_t address, uint64_t bytes) override {
    return calls.view ? calls.view(address, bytes) : nullptr;
  }
  bool hashes() const override { return static_cast<bool>(calls.digests); }
  int digests(std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out) override {
    return calls.digests ? calls.digests(ranges, out) : checkpoint::kNotOnDevice;
  }
  bool untouched(uint64_t address, uint64_t bytes) override {
    return calls.untouched && calls.untouched(address, bytes);
  }
  int idle() override { return calls.idle(); }
  bool work() override { return calls.work && calls.work(); }
  uint64_t progress() override { return calls.progress ? calls.progress() : 0; }
  bool waits() override { return !calls.waits || calls.waits(); }
  bool capturing() override { return calls.capturing(); }
  void mapped(std::vector<checkpoint::MemoryRange>* ranges) override { calls.mapped(ranges); }
  std::string out_of_reach() override {
    return calls.out_of_reach ? calls.out_of_reach() : DeviceState::out_of_reach();
  }
  void variables(std::vector<ring::ManifestPlace>* places) override { calls.hidden(places); }
  bool peeks() const override { return static_cast<bool>(calls.peek); }
  bool peek(uint64_t address, std::byte* to, uint64_t bytes) override {
    return calls.peek(address, to, bytes);
  }
  int read_beside(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) override {
    return calls.read_beside(next, take);
  }
  int read_beside_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                         const checkpoint::TakeDigest& hashed) override {
    return calls.read_beside_hashed ? calls.read_beside_hashed(next, take, hashed)
                                    : BackgroundReads::read_beside_hashed(next, take, hashed);
  }
  bool ready() override { return calls.ready_beside(); }
  void enter() override {
    if (calls.enter) calls.enter();
  }
  uint64_t allocate(uint64_t bytes) override { return calls.allocate(bytes); }
  void release(uint64_t address) override { calls.release(address); }
  int duplicate(uint64_t to, uint64_t from, uint64_t bytes) override {
    return calls.duplicate(to, from, bytes);
  }
  int duplicated() override { return calls.duplicated(); }
  void staged(uint64_t step, uint64_t offset, uint64_t seq) override {
    if (calls.staged) calls.staged(step, offset, seq);
  }
  void prepared(uint64_t step, uint64_t seq) override {
    if (calls.prepared) calls.prepared(step, seq);
  }
  void request_decision(uint64_t step) override {
    if (calls.request_decision) calls.request_decision(step);
  }
  void tell_pace(uint64_t cuts) override {
    if (calls.tell_pace) calls.tell_pace(cuts);
  }
  uint64_t pace_of_others() override { return calls.pace_of_others ? calls.pace_of_others() : 0; }
  bool acknowledged(uint64_t cut) override {
    return !calls.acknowledged || calls.acknowledged(cut);
  }
  bool log_pressure() override { return calls.log_pressure && calls.log_pressure(); }
  const std::byte* content(const ring::ManifestBlock& block, std::string* problem) override {
    return calls.remote ? calls.remote(block, problem) : RemoteBlocks::content(block, problem);
  }
  const std::byte* likely_content(const ring::ManifestBlock& block) override {
    return calls.likely_remote ? calls.likely_remote(block) : nullptr;
  }
  std::string from_peers(std::span<const ring::ManifestBlock> blocks, checkpoint::BlockCheck& check,
                         std::vector<bool>* there) override {
    return calls.from_peers ? calls.from_peers(blocks, check, there) : std::string();
  }

  FakeCalls calls;
};

}  // namespace recovery_test

#endif  // PYFT_TESTS_RECOVERY_FAKE_H_
