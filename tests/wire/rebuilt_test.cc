// Communicators that all ranks make anew when one has died: what is known of them in the next
// server.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "api/mock_table.h"
#include "check.h"
#include "comes.h"
#include "recovery/object.h"
#include "server/recovery/rebuilt_communicators.h"

namespace {

using namespace recovery_test;  // NOLINT: a test
namespace msg = ring::msg;

constexpr uint64_t kParent = 0x101, kPart = 0x102, kLater = 0x103;  // handles
constexpr uint64_t kHow = 7;

// Of the calls that make communicators: how many have begun, and on how many each waits before it
// returns, as it would on other ranks.
std::atomic<int> begun = 0, wanted = 0, met = 0;

const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.ncclCommInitRankScalable = [](ncclComm_t* comm, int, int, int, ncclUniqueId*, ncclConfig_t*) {
      *comm = reinterpret_cast<ncclComm_t>(0x5000 + 8 * ++begun);
      met += comes([] { return begun >= wanted; });
      return ncclSuccess;
    };
    return t;
  }();
  return made;
}

// An agent that knows an id for each communicator.
class Agent : public server::AgentLink::Handler {
 public:
  Agent() {
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    theirs_.reset(ends[0]);
    ours_.reset(ends[1]);
    link.emplace(theirs_.get(), *this);
    agent_.emplace(ours_.get(), answers_);
    answers_.to = &*agent_;
  }
  bool take(const server::AgentMessage&) override { return false; }
  std::optional<server::AgentLink> link;

 private:
  struct Answers : server::AgentLink::Handler {
    bool take(const server::AgentMessage& message) override {
      const std::array<std::byte, sizeof(ncclUniqueId)> id{};
      if (const auto asked = message.as<msg::WantId>())
        to->send(msg::MadeAs{.key = asked->key}, id);
      return true;
    }
    server::AgentLink* to = nullptr;
  };
  UniqueFd theirs_, ours_;
  Answers answers_;
  std::optional<server::AgentLink> agent_;
};

struct Job {
  Job() : object(kBeforeHeap + (1 << 20)) {
    std::string error;
    store = object.open(&error);
    CHECK_EQ(error, "");
    ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
    client = ring::Channel::create(shape, &error);
    ring::ChannelFds fds = client->dup_fds();
    fds.store = UniqueFd(dup(object.fd));
    ring::ChannelSizes sizes = client->sizes();
    sizes.pinned = 0;
    sizes.store = object.bytes;
    channel = ring::Channel::map(ring::Role::kServer, 0, std::move(fds), sizes, &error);
    CHECK_EQ(error, "");
  }
  // By which all ranks and the agent know it.
  uint64_t key_of(uint64_t handle) const {
    const ring::StoredCommunicator* const entry =
        checkpoint::CommunicatorTable(*channel).living(handle);
    return entry ? entry->key : 0;
  }
  Object object;
  std::unique_ptr<checkpoint::Store> store;
  std::unique_ptr<ring::Channel> client, channel;
  Agent agent;
};

// Of a further thread.
struct Device : server::DeviceThreads {
  void enter() override { ++entered; }
  std::atomic<int> entered = 0;
};

// One server of the rank.
struct Life {
  explicit Life(Job& job) : recovery(*job.channel), all(*job.channel, recovery, table(), device) {
    all.start(&*job.agent.link);
  }
  void divide(uint64_t handle, uint64_t seq) {
    all.divides(handle, kParent, kHow);
    all.made(this, handle, seq, 0, 2);
  }
  Device device;
  checkpoint::Recovery recovery;
  server::RebuiltCommunicators all;
};

TEST(a_part_that_is_made_behind_the_line_has_no_name_of_before) {
  Job job;
  {
    Life life(job);
    const std::array<std::byte, sizeof(ncclUniqueId)> id{};
    life.all.id_for(kParent, 0, id);
    life.all.made(&life, kParent, 1, 0, 2);
    life.divide(kPart, 2);  // before any collective
    life.all.collective(kParent);
    life.all.at_cut(1);
    ring::Manifest line{};
    line.cut = 1;
    line.seq = 10;
    CHECK(job.store->publish(line, {}));
    life.all.collective(kParent);  // is repeated
    life.all.at_cut(2);            // no line
  }
  const uint64_t before = job.key_of(kPart);
  Life next(job);
  CHECK_EQ(next.all.rejoin(), "");
  CHECK(next.all.made_before(kPart, 2) != nullptr);
  next.divide(kLater, 20);
  CHECK(before && job.key_of(kLater));
  CHECK(job.key_of(kLater) != before);
}

TEST(communicators_are_made_anew_at_the_same_time) {
  constexpr uint64_t kCount = 5;
  Job job;
  {
    Life life(job);
    for (uint64_t i = 0; i < kCount; ++i) {
      std::array<std::byte, sizeof(ncclUniqueId)> id{};
      id[0] = static_cast<std::byte>(i);
      life.all.id_for(kParent + i, 0, id);
      life.all.made(&life, kParent + i, 1 + i, 0, 2);
    }
    life.all.at_cut(1);
    ring::Manifest line{};
    line.cut = 1;
    line.seq = 10;
    CHECK(job.store->publish(line, {}));
  }
  begun = met = 0;
  wanted = kCount;
  Life next(job);
  CHECK_EQ(next.all.rejoin(), "");
  wanted = 0;
  CHECK_EQ(begun.load(), static_cast<int>(kCount));
  CHECK_EQ(met.load(), static_cast<int>(kCount));
  CHECK_EQ(next.device.entered.load(), static_cast<int>(kCount) - 1);
  std::vector<void*> made;
  for (uint64_t i = 0; i < kCount; ++i) made.push_back(next.all.made_before(kParent + i, 1 + i));
  std::ranges::sort(made);
  CHECK(made.front() && std::ranges::adjacent_find(made) == made.end());
}

}  // namespace

CHECK_MAIN
