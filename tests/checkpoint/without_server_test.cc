// Snapshots, restores and replays without a server and without a GPU: a device of a few lines,
// which has an address space of its own, works for a client that fills blocks with numbers. It
// dies, and the next one goes on where it was.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alive.h"
#include "check.h"
#include "checkpoint/bytes_passed.h"
#include "checkpoint/resources/device_memory.h"
#include "checkpoint/resources/objects.h"
#include "checkpoint/snapshot/snapshotter.h"
#include "ring/reader.h"
#include "ring/writer.h"

namespace {

using namespace pyft;  // NOLINT: a test
using checkpoint::MemoryRange;

enum Call : uint16_t { kMake = ring::kFirstCall, kAdd, kEnd };
struct Command {
  uint64_t address, bytes, value;
};

// Blocks by address. It does at once what it is given.
class Device : public checkpoint::DeviceMemory,
               public checkpoint::DeviceState,
               public checkpoint::Placement,
               public checkpoint::ObjectMaker {
 public:
  std::map<uint64_t, std::vector<std::byte>> blocks;
  std::function<void()> meanwhile;  // once, what the client does
  std::vector<uint64_t> passed;     // what is seen from outside before each command

  std::string execute(const ring::EntryHeader& header, std::span<const std::byte> body,
                      std::span<const std::byte>) override {
    Command command{};
    std::memcpy(&command, body.data(), sizeof command);
    passed.push_back(checkpoint::bytes_passed);
    if (const auto act = std::exchange(meanwhile, nullptr)) act();
    if (header.call == kMake) blocks[command.address].resize(command.bytes);
    if (header.call == kEnd) blocks.erase(command.address);
    if (header.call == kAdd)
      for (std::byte& each : blocks.at(command.address))
        each = static_cast<std::byte>(static_cast<uint64_t>(each) * 3 + command.value);
    return {};
  }
  bool failed() override { return false; }
  bool imports(const ring::EntryHeader&) const override { return false; }

  int read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) override {
    for (MemoryRange range; next(&range);) take(at(range.address), range.bytes);
    return 0;
  }
  int write(const checkpoint::NextContent& next) override {
    for (checkpoint::Content one; next(&one);) std::memcpy(at(one.address), one.from, one.bytes);
    return 0;
  }
  int idle() override { return 0; }
  bool capturing() override { return false; }
  void mapped(std::vector<MemoryRange>* ranges) override {
    for (const auto& [address, block] : blocks) ranges->push_back({address, block.size()});
  }
  void variables(std::vector<ring::ManifestPlace>*) override {}

 private:
  std::byte* at(uint64_t address) {
    const auto block = std::prev(blocks.upper_bound(address));
    return block->second.data() + (address - block->first);
  }
};

// What outlives a device: the client's log, and the store.
struct Job {
  Job() : store_fd(memfd_create("store", MFD_CLOEXEC)) {
    std::string error;
    CHECK_EQ(ftruncate(store_fd, kStoreBytes), 0);
    store = static_cast<std::byte*>(
        mmap(nullptr, kStoreBytes, PROT_READ | PROT_WRITE, MAP_SHARED, store_fd, 0));
    ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
    channel = ring::Channel::create(shape, &error);
    CHECK_EQ(error, "");
    channel->control().protect = static_cast<uint32_t>(ring::Protect::kSnapshot);
    writer.emplace(*channel, alive);
  }
  Job(const Job&) = delete;
  ~Job() {
    munmap(store, kStoreBytes);
    close(store_fd);
  }
  void call(Call call, const Command& command, uint16_t flags = 0) {
    CHECK(static_cast<bool>(writer->append(call, command, flags)));
  }
  void make(uint64_t address, uint64_t bytes) { call(kMake, {address, bytes, 0}, ring::kCreates); }
  void add(uint64_t address, uint64_t value) { call(kAdd, {address, 0, value}); }
  void end(uint64_t address) { call(kEnd, {address, 0, 0}, ring::kDestroys); }
  void cut() { CHECK(static_cast<bool>(writer->cut())); }

  static constexpr int64_t kStoreBytes = 8 << 20;
  const int store_fd;
  std::byte* store = nullptr;
  AlwaysAlive alive;
  std::unique_ptr<ring::Channel> channel;
  std::optional<ring::Writer> writer;
};

// One device's life.
class Life {
 public:
  // Empty, or why it cannot take over.
  explicit Life(Job& job, std::function<void()> meanwhile = nullptr)
      : job_(job), recovery_(*job.channel) {
    device.meanwhile = std::move(meanwhile);
    const checkpoint::Store::Shape shape{1 << 16, 1 << 16, 1 << 16, 1 << 12};
    store_ = checkpoint::Store::open(job.store, Job::kStoreBytes, job.store_fd, shape, &problem);
    if (!problem.empty()) return;
    checkpoint::Restored restored =
        checkpoint::restore_objects(*job.channel, *store_, device, device, device);
    problem = restored.error;
    checkpoint::RemoteBlocks none;
    if (problem.empty() && store_->has_committed())
      problem = checkpoint::restore_memory(job.channel->control(), *store_, device, none);
    position = restored.position;
    checkpoint::SnapshotOptions options;
    options.every = 1;
    options.late = checkpoint::Late::kNever;
    snapshotter_.emplace(checkpoint::Log{*job.channel, job.alive, recovery_}, *store_,
                         checkpoint::Device{device, device}, agent_, others_, options);
  }
  // All that the client has written so far.
  void work() {
    ring::Reader reader(job_.channel->log_view(), ring::Reader::Mode::kServer, position);
    ring::EntryView entry;
    while (reader.next(&entry) == ring::Reader::Next::kEntry) {
      position = reader.position();
      ++entries;
      if (entry.header.call >= ring::kFirstCall)
        CHECK_EQ(device.execute(entry.header, entry.body, entry.payload), "");
      if (entry.header.call != static_cast<uint16_t>(ring::Mark::kCut)) continue;
      ring::CutMark cut{};
      std::memcpy(&cut, entry.body.data(), sizeof cut);
      snapshotter_->take(entry.header, cut, entry.payload, position);
    }
    CHECK_EQ(reader.error(), "");
  }

  Device device;
  std::string problem;
  uint64_t position = 0, entries = 0;

 private:
  Job& job_;
  checkpoint::Recovery recovery_;
  checkpoint::AgentChannel agent_;
  checkpoint::CommunicatorState others_;
  std::unique_ptr<checkpoint::Store> store_;
  std::optional<checkpoint::Snapshotter> snapshotter_;
};

// Two blocks, of which one is ended and made again, and a cut after each step.
void step(Job& job, uint64_t number) {
  constexpr uint64_t kModel = 0x100000, kOther = 0x200000;
  if (number == 1) job.make(kModel, 70'000);
  if (number > 1) job.end(kOther + (number - 1) * 0x10000);
  job.make(kOther + number * 0x10000, 1000 + number);
  job.add(kModel, number);
  job.add(kOther + number * 0x10000, 7 * number);
  job.cut();
}

TEST(the_next_device_goes_on_with_the_same_memory) {
  Job job, undisturbed;
  Life reference(undisturbed);
  std::optional<Life> life(std::in_place, job);
  for (uint64_t number = 1; number <= 6; ++number) {
    step(job, number);
    step(undisturbed, number);
    life->work();
    reference.work();
    CHECK_EQ(job.channel->control().snapshot_cut.load(), number);
    job.add(0x100000, 100 + number);  // what comes after the cut is replayed
    undisturbed.add(0x100000, 100 + number);
    life->work();
    reference.work();
    const uint64_t before = life->position;
    life.emplace(job);
    CHECK_EQ(life->problem, "");
    CHECK(life->device.blocks != reference.device.blocks);
    life->work();
    CHECK_EQ(life->entries, 1u);
    CHECK_EQ(life->position, before);
    CHECK(life->device.blocks == reference.device.blocks);
  }
}

// The snapshot is in the store, the client finds that when it writes next: then it frees the log
// before it, and writes over that.
TEST(what_the_client_frees_while_objects_are_made_has_been_read) {
  constexpr uint64_t kFirst = 0x100000, kBlocks = 100;
  const auto begin = [](Job& job) {
    for (uint64_t i = 0; i < kBlocks; ++i) job.make(kFirst + i * 0x10000, 100 + i);
    job.cut();
  };
  const auto go_round = [](Job& job) {
    const uint64_t end = job.channel->ring_bytes() + 2048;
    while (job.channel->log().appended.load() < end) job.add(kFirst, 3);
  };
  Job job, undisturbed;
  Life reference(undisturbed);
  std::optional<Life> life(std::in_place, job);
  begin(job);
  begin(undisturbed);
  life->work();
  reference.work();
  CHECK_EQ(job.channel->log().committed.load(), 0u);
  for (const Job* const one : {&job, &undisturbed})
    one->channel->control().consumed = life->position;  // as a server says it
  life.emplace(job, [&] { go_round(job); });
  CHECK_EQ(life->problem, "");
  CHECK(job.channel->log().committed.load() > 0);
  go_round(undisturbed);
  life->work();
  reference.work();
  CHECK(life->device.blocks == reference.device.blocks);
}

// A restore of which nothing moves is overdue to the agent.
TEST(each_object_that_is_made_is_seen_from_outside) {
  Job job;
  std::optional<Life> life(std::in_place, job);
  for (uint64_t i = 1; i <= 3; ++i) job.make(i * 0x100000, 100);
  job.cut();
  life->work();
  life.emplace(job);
  CHECK_EQ(life->problem, "");
  const std::vector<uint64_t>& passed = life->device.passed;
  CHECK_EQ(passed.size(), 3u);
  for (size_t i = 1; i < passed.size(); ++i) CHECK(passed[i] > passed[i - 1]);
}

// There may be room for it in the next device, and the program takes its place for free.
TEST(what_was_refused_before_the_snapshot_is_not_made) {
  Job job;
  std::optional<Life> life(std::in_place, job);
  job.make(0x100000, 1000);
  const Command command{0x900000, 5000, 0};
  const uint64_t refused = job.writer->append(kMake, command, ring::kCreates).seq;
  life->work();
  life->device.blocks.erase(command.address);
  job.writer->forget_creation(refused);
  job.cut();
  life->work();
  life.emplace(job);
  CHECK_EQ(life->problem, "");
  CHECK_EQ(life->device.blocks.size(), 1u);
}

TEST(a_device_that_dies_before_any_snapshot_is_replayed_from_the_start) {
  Job job;
  std::optional<Life> life(std::in_place, job);
  job.make(0x1000, 100);
  job.add(0x1000, 5);
  life->work();
  const auto before = life->device.blocks;
  life.emplace(job);
  CHECK(life->device.blocks.empty());
  life->work();
  CHECK(life->device.blocks == before);
}

TEST(a_store_with_other_bytes_is_refused_by_the_name_of_the_block) {
  Job job;
  std::optional<Life> life(std::in_place, job);
  step(job, 1);
  life->work();
  std::string marks(1000, '\7');  // 0 * 3 + 7
  std::string_view all(reinterpret_cast<const char*>(job.store), Job::kStoreBytes);
  const size_t at = all.find(marks);
  CHECK(at != std::string_view::npos);
  if (at == std::string_view::npos) return;
  job.store[at] = std::byte{8};
  life.emplace(job);
  CHECK(life->problem.find("block of [1001] bytes") != std::string::npos);
}

}  // namespace

CHECK_MAIN
