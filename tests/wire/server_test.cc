// The server as main() makes it: in this process, on a channel with a store, with the test as its
// client and its agent. Behind is a device whose streams have always come to their ends.
#include "server/server.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "api/commands.h"
#include "api/mock_table.h"
#include "check.h"
#include "own_server.h"
#include "ring/writer.h"
#include "server/handlers/host_copies.h"
#include "server/recovery/session_device.h"

namespace {

using namespace pyft;  // NOLINT: a test

constexpr uint64_t kStoreBytes = uint64_t{2} << 30;  // sparse

// Streams call functions at once, as a soft GPU may.
const backend::Backend& soft() {
  static const backend::Backend made = [] {
    backend::Backend backend{backend::Kind::kSoft, backend::mock_table(), {}};
    backend.extras.publish = [](void*, void (*function)(void*), void* data) {
      function(data);
      return 0;
    };
    backend.extras.view = [](unsigned long long address, unsigned long long) {
      return reinterpret_cast<const void*>(address);
    };
    backend.extras.module_variables = [](void*, unsigned long long*, unsigned long long* bytes) {
      return *bytes = 0, 0;
    };
    return backend;
  }();
  return made;
}

// A client's channel, and both ends of the connection to its servers.
struct Job {
  Job() : client(make_channel()), writer(*client, alive) {
    setenv("PYFT_JOURNAL_MB", "1", 1);
    client->control().protect = static_cast<uint32_t>(ring::Protect::kSnapshot);
    store.reset(memfd_create("store", MFD_CLOEXEC));
    CHECK_EQ(ftruncate(store.get(), kStoreBytes), 0);
    start();
  }
  // The agent has a new server for the same client.
  void start() {
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    agent.reset(ends[0]);
    attachment.agent.reset(ends[1]);
    ring::ChannelFds fds = client->dup_fds();
    fds.store.reset(dup(store.get()));
    ring::ChannelSizes sizes = client->sizes();
    sizes.pinned = 0;
    sizes.store = kStoreBytes;
    std::string error;
    attachment.channel = ring::Channel::map(ring::Role::kServer, 0, std::move(fds), sizes, &error);
    CHECK_EQ(error, "");
  }
  std::unique_ptr<server::Server> serve(std::string* error) {
    return server::Server::make(attachment, soft(), nullptr, standby, error);
  }
  ring::ControlPage& page() const { return client->control(); }
  // Of what the server has said to the agent, the first message of this kind.
  bool was_told(ring::MessageKind kind) const {
    server::AgentMessage message{};
    while (server::receive_message(agent.get(), &message) && message.kind != ring::MessageKind{})
      if (message.kind == kind) return true;
    return false;
  }

  AlwaysAlive alive;
  std::unique_ptr<ring::Channel> client;
  ring::Writer writer;
  UniqueFd store, agent;
  server::Attachment attachment;
  server::Standby standby{soft()};
};

TEST(a_server_serves_until_its_client_ends) {
  Job job;
  std::string error;
  const auto server = job.serve(&error);
  CHECK_EQ(error, "");
  job.writer.goodbye();
  CHECK(server->run() == server::Loop::End::kGoodbye);
  CHECK(job.was_told(ring::MessageKind::kLive));
}

TEST(a_server_that_replaces_another_starts_at_its_snapshot) {
  Job job;
  std::string error;
  {
    const auto server = job.serve(&error);
    CHECK_EQ(error, "");
    job.writer.cut();
    job.writer.fence(0, 1, 1);
    job.attachment.agent.reset();  // dies
    CHECK(server->run() == server::Loop::End::kAgentGone);
    CHECK_EQ(job.page().snapshot_cut.load(), 1u);
  }
  job.start();
  const auto next = job.serve(&error);
  CHECK_EQ(error, "");
  job.writer.goodbye();
  CHECK(next->run() == server::Loop::End::kGoodbye);
  CHECK_EQ(job.page().replayed_entries.load(), 1u);  // the fence
  CHECK(job.was_told(ring::MessageKind::kLive));
}

TEST(a_client_that_breaks_the_protocol_is_told_apart) {
  Job job;
  std::string error;
  const auto server = job.serve(&error);
  CHECK_EQ(error, "");
  job.writer.append(uint16_t{0xffff}, uint64_t{0});
  CHECK(server->run() == server::Loop::End::kProtocolError);
  CHECK(server->error().starts_with("entry ["));
}

TEST(a_server_is_not_made_on_a_store_that_is_of_no_use) {
  Job job;
  setenv("PYFT_JOURNAL_MB", "99999999", 1);
  std::string error;
  CHECK(!job.serve(&error));
  CHECK(error.starts_with("PYFT_JOURNAL_MB is [99999999]"));
}

// What differs, counted. With it nothing ends the process.
struct Counted : checkpoint::Differences {
  uint64_t count = 0;
  void differs(const checkpoint::Difference& /*difference*/) override { ++count; }
  void cannot_tell(const checkpoint::Difference& /*difference*/) override { ++count; }
};

TEST(a_server_that_replaces_another_answers_only_into_slots_without_an_answer) {
  Job job;
  job.page().consumed = 64;  // so far the server before has come
  ring::Channel& channel = *job.attachment.channel;
  server::Session session(channel, &soft().table, job.alive);
  Counted differences;
  session.recovery().audit(&differences);
  ring::ReplySlot& slot = channel.slot(0);
  slot.done_seq = 9, slot.code = 2;
  const auto reply = [&](uint64_t seq, int32_t code) {
    ring::EntryHeader header{};
    header.seq = seq, header.flags = ring::kWantsReply, header.reply_slot = 0;
    CHECK(session.reply(header, code).ok());
  };
  reply(5, 0);  // the slot is another call's by now
  CHECK_EQ(slot.done_seq.load(), 9u);
  CHECK_EQ(slot.code, 2);
  reply(9, 2);
  CHECK_EQ(differences.count, 0u);
  reply(9, 7);
  CHECK_EQ(differences.count, 1u);
  CHECK_EQ(slot.code, 2);  // what the program was told stays
  reply(10, 7);
  CHECK_EQ(slot.done_seq.load(), 10u);
  CHECK_EQ(slot.code, 7);
  CHECK_EQ(differences.count, 1u);
}

// Whether a process that repeats an entry with a result ends, as one that cannot do that.
bool is_refused(server::Session& session, uint64_t seq, uint64_t target) {
  const pid_t child = fork();
  if (child == 0) {
    ring::EntryHeader header{};
    header.seq = seq;
    const server::JournaledResult result(session, header, 0, target, 64);
    _exit(result.address() == target ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == ring::kUnrecoverableExit) return true;
  CHECK_EQ(status, 0);
  return false;
}

TEST(a_result_that_was_not_kept_is_not_written_again) {
  Job job;
  std::string error;
  CHECK(job.serve(&error) != nullptr);  // makes the store
  job.start();
  job.page().consumed = 64;
  ring::Channel& channel = *job.attachment.channel;
  server::Session session(channel, &soft().table, job.alive);
  session.recovery().set_replaying(true);
  const auto target = reinterpret_cast<uint64_t>(channel.bounce());
  CHECK(!is_refused(session, 7, target));
  reinterpret_cast<ring::StoreHeader*>(channel.store())->journal_lost = 5;
  CHECK(!is_refused(session, 4, target));
  CHECK(is_refused(session, 5, target));
  session.recovery().set_replaying(false);
  CHECK(!is_refused(session, 5, target));
}

// A server that executes fills: in the place of the one before, if it replays.
struct Fills {
  Fills(Job& job, bool replays) : session(*job.attachment.channel, &table(), job.alive) {
    CHECK_EQ(session.recovery().journal().adopt(), "");
    session.recovery().set_replaying(replays);
  }
  static const backend::Table& table() {
    static const backend::Table made = [] {
      backend::Table table = backend::mock_table();
      table.cuMemsetD8Async = [](CUdeviceptr at, unsigned char value, size_t bytes, CUstream) {
        std::memset(reinterpret_cast<void*>(at), value, bytes);
        return CUDA_SUCCESS;
      };
      table.cuMemsetD2D8Async = [](CUdeviceptr at, size_t pitch, unsigned char value, size_t width,
                                   size_t height, CUstream) {
        for (size_t row = 0; row < height; ++row)
          std::memset(reinterpret_cast<void*>(at + row * pitch), value, width);
        return CUDA_SUCCESS;
      };
      return table;
    }();
    return made;
  }
  template <class Command>
  void execute(uint64_t seq, Call call, const Command& command) {
    ring::EntryHeader header{};
    header.seq = seq, header.call = static_cast<uint16_t>(call), header.reply_slot = ring::kNoSlot;
    CHECK(server::dispatch(session, header, std::as_bytes(std::span(&command, 1)), {}).ok());
  }
  // Bytes of a line of 8 in client memory, and half of each of two lines.
  void execute_all(uint64_t target) {
    execute(5, Call::cudaMemsetAsync, cmd::cudaMemsetAsync{0, target, 1, 1, 8});
    execute(6, Call::cudaMemset2DAsync, cmd::cudaMemset2DAsync{0, target + 8, 8, 2, 1, 4, 2});
  }
  server::Session session;
};

TEST(client_memory_is_not_filled_again_in_a_replay) {
  Job job;
  std::string error;
  CHECK(job.serve(&error) != nullptr);  // makes the store
  job.start();
  std::byte* const memory = job.attachment.channel->bounce();
  const auto target = reinterpret_cast<uint64_t>(memory);
  const auto line = [&](int i) {
    return std::string(reinterpret_cast<const char*>(memory + 8 * i), 8);
  };
  std::memset(memory, 'x', 24);
  Fills(job, false).execute_all(target);
  CHECK_EQ(line(0), "\1\1\1\1\1\1\1\1");
  CHECK_EQ(line(1), "\2\2\2\2xxxx");
  CHECK_EQ(line(2), "\2\2\2\2xxxx");
  std::memset(memory, 'y', 24);  // the program has seen it, and goes on
  job.page().consumed = 64;
  Fills(job, true).execute_all(target);
  for (const int i : {0, 1, 2}) CHECK_EQ(line(i), "yyyyyyyy");
  // The device's own memory is filled in each replay.
  std::byte own[8] = {};
  Fills(job, true).execute(
      5, Call::cudaMemsetAsync,
      cmd::cudaMemsetAsync{0, reinterpret_cast<uint64_t>(own), 3, 1, sizeof own});
  CHECK(own[7] == std::byte{3});
}

// A device that this process works for, and one stream of which has work.
namespace busy {
bool has_work = true;
int ended = 0;

const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table table = backend::mock_table();
    table.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      *stream = reinterpret_cast<CUstream>(0x3000);
      return CUDA_SUCCESS;
    };
    table.cuStreamQuery = [](CUstream stream) {
      const bool works = has_work && stream == reinterpret_cast<CUstream>(0x3000);
      return works ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    table.cuStreamDestroy_v2 = [](CUstream) {
      ++ended;
      return CUDA_SUCCESS;
    };
    return table;
  }();
  return made;
}

struct Device : server::DeviceCalls {
  bool works() const override { return true; }
};
}  // namespace busy

TEST(a_cut_waits_for_what_streams_were_given_that_the_program_has_ended) {
  busy::Device device;
  OwnServer server(&busy::table(), device);
  const backend::Extras extras{};
  server::SessionState state(server.session, extras);
  const uint64_t handle = Handle::make(HandleKind::kStream, 20, 1).value;
  const cmd::cudaStreamCreateWithPriority create{handle, CU_STREAM_NON_BLOCKING, 0};
  CHECK(server.dispatch(Call::cudaStreamCreateWithPriority, create).ok());
  CHECK_EQ(state.idle(), int{CUDA_ERROR_NOT_READY});
  CHECK(server.dispatch(Call::cudaStreamDestroy, cmd::cudaStreamDestroy{handle}).ok());
  CHECK_EQ(state.idle(), int{CUDA_ERROR_NOT_READY});
  busy::has_work = false;
  CHECK_EQ(state.idle(), 0);
  CHECK_EQ(busy::ended, 1);
  CHECK(server.dispatch(Call::cudaStreamCreateWithPriority, create).ok());
  CHECK(server.dispatch(Call::cudaStreamDestroy, cmd::cudaStreamDestroy{handle}).ok());
  CHECK_EQ(busy::ended, 2);
}

}  // namespace

CHECK_MAIN
