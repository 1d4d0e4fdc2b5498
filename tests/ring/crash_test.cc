// A client killed at any named point leaves a ring that reads to the last complete entry. Parent
// processes here create no Writer before they fork: a fork of a client may not write.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "check.h"
#include "fixture.h"
#include "pyft/fault.h"
#include "ring/log_file.h"
#include "ring/object_log.h"

using namespace fixture;

namespace {

// Every byte of tail and payload of entry `seq` has this value, so that a torn entry shows.
std::byte stamp(uint64_t seq) {
  return static_cast<std::byte>(seq * 37 + 11);
}

[[noreturn]] void write_until_killed(ring::Channel& channel, const std::string& fault) {
  AlwaysAlive alive;
  ring::Writer writer(channel, alive);
  pyft::fault::arm(fault.c_str());
  for (uint64_t i = 1; i < 4000; ++i) {
    const bool payload = i % 3 == 0, creates = i % 5 == 0, destroys = i % 5 == 1 && i > 25;
    const uint16_t flags = creates ? ring::kCreates : destroys ? ring::kDestroys : 0;
    ring::Entry entry = writer.begin(kCall, static_cast<uint32_t>(sizeof(Body) + i * 13 % 200),
                                     flags, payload ? 1 + i * 29 % 900 : 0);
    const Body body{creates ? i : i - 21, i};
    const std::byte value = stamp(entry.seq());
    std::memset(entry.body().data(), static_cast<int>(value), entry.body().size());
    std::memcpy(entry.body().data(), &body, sizeof body);
    if (payload)
      std::memset(entry.payload().data(), static_cast<int>(value), entry.payload().size());
    writer.publish(std::move(entry));
    channel.control().consumed = channel.log().appended.load();  // an instant server
    if (i % 16 == 0) writer.cut();
    channel.control().consumed = channel.log().appended.load();
  }
  _exit(99);
}

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == value; });
}

const auto check_entry = [](const ring::EntryHeader& header, std::span<const std::byte> body,
                            std::span<const std::byte> payload) {
  if (header.call < ring::kFirstCall) return;
  const Body b = body_of(body);
  const size_t length = sizeof(Body) + b.value * 13 % 200;
  CHECK(body.size() >= length);
  CHECK(all_are(body.subspan(sizeof(Body), length - sizeof(Body)), stamp(header.seq)));
  CHECK(all_are(payload, stamp(header.seq)));
};

void read_what_is_left(const ring::Channel& channel) {
  std::string error;
  const auto file = ring::LogFile::map(channel.log_fd(), &error);
  CHECK_EQ(error, std::string());
  ring::Reader reader = ring::Reader::trace(file->view());
  ring::EntryView entry;
  uint64_t last = 0;
  while (reader.next(&entry) == ring::Reader::Next::kEntry) {
    CHECK(last == 0 || entry.header.seq == last + 1);
    last = entry.header.seq;
    check_entry(entry.header, entry.body, entry.payload);
  }
  CHECK_EQ(reader.error(), std::string());
  const uint64_t next = file->view().header->next_seq;
  CHECK(last + 1 == next || last + 2 == next);  // killed between counting and publishing
  CHECK(ring::for_each_object(file->view(), check_entry, &error));
  CHECK_EQ(error, std::string());
}

void crash_at(const char* point, int hit) {
  const std::string fault = std::string(point).append(":").append(std::to_string(hit));
  auto channel = make_channel(small_shape());
  const pyft::UniqueFd notes(memfd_create("notes", 0));
  setenv("PYFT_FAULT_NOTES", ("/proc/self/fd/" + std::to_string(notes.get())).c_str(), 1);
  const pid_t child = fork();
  if (child == 0) write_until_killed(*channel, fault);
  int status = 0;
  waitpid(child, &status, 0);
  char noted[100] = {};
  CHECK(pread(notes.get(), noted, sizeof noted - 1, 0) > 0);
  CHECK_EQ(std::string(noted), "happened PYFT_FAULT=" + fault + "\n");
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
    std::cerr << "fault [" << fault << "] was not reached: status [" << status << "]\n";
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  read_what_is_left(*channel);
}

}  // namespace

TEST(killed_at_every_point) {
  for (const char* point : {"ring.after_begin", "ring.before_publish", "ring.after_publish"})
    for (int hit : {1, 2, 17, 100, 1000, 1001, 1500}) crash_at(point, hit);
  for (const char* point : {"ring.after_retire", "ring.after_fold", "ring.after_commit"})
    for (int hit : {1, 2, 50, 101}) crash_at(point, hit);
  for (int hit : {1, 2, 60, 300}) crash_at("objects.before_publish", hit);
  for (int hit : {1, 2, 5}) crash_at("objects.before_compacted", hit);
}

// Many processes have the same point; what they share says whether one has come to it.
TEST(a_point_to_which_another_process_has_come_is_not_missed) {
  const pyft::UniqueFd notes(memfd_create("notes", 0));
  setenv("PYFT_FAULT_NOTES", ("/proc/self/fd/" + std::to_string(notes.get())).c_str(), 1);
  pyft::fault::arm("ring.after_begin:5000");
  const std::string asked = "pyft: the fault [PYFT_FAULT=ring.after_begin:5000]";
  CHECK_EQ(pyft::fault::missed({"ring."}), asked + " has not come to [pid " +
                                               std::to_string(getpid()) +
                                               "]: this point was reached [0] times\n");
  for (const std::string line : {"happened PYFT_FAULT=ring.after_begin:50000\n",
                                 "happened PYFT_FAULT=ring.after_begin:5000\n"}) {
    CHECK(pyft::fault::missed({"ring."}).starts_with(asked));
    CHECK_EQ(write(notes.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  CHECK_EQ(pyft::fault::missed({"ring."}), std::string());
  pyft::fault::arm("");
}

TEST(killed_at_any_moment) {
  for (int round = 0; round < 10; ++round) {
    auto channel = make_channel(small_shape());
    const pid_t child = fork();
    if (child == 0)
      for (;;) write_until_killed(*channel, "none:1");
    usleep(static_cast<useconds_t>(200 + round * 333));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    read_what_is_left(*channel);
  }
}

// `pyft trace` of a running job: what the writer overtakes is skipped, never shown torn.
TEST(a_live_ring_is_read_without_tears) {
  auto channel = make_channel(small_shape());
  const pid_t child = fork();
  if (child == 0) write_until_killed(*channel, "none:1");
  std::string error;
  const auto file = ring::LogFile::map(channel->log_fd(), &error);
  uint64_t entries = 0;
  int status = 0;
  bool ended = false;
  while (!ended) {  // once more at the end: this process may get no turn before
    ended = waitpid(child, &status, WNOHANG) != 0;
    ring::Reader reader = ring::Reader::trace(file->view());
    ring::EntryView entry;
    for (; reader.next(&entry) == ring::Reader::Next::kEntry; ++entries)
      check_entry(entry.header, entry.body, {});
    CHECK_EQ(reader.error(), std::string());
  }
  CHECK(entries > 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 99);
}

// Last: it makes this process a client.
TEST(the_child_of_a_client_is_refused) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  CHECK(bool(writer.append(kCall, Body{})));
  ring::Entry held = writer.begin(kCall, 16);  // the mutex is taken at the fork
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = writer.append(kCall, Body{}).status == ring::WaitStatus::kForked &&
                         writer.cut().status == ring::WaitStatus::kForked &&
                         writer.wait_consumed_all() == ring::WaitStatus::kForked &&
                         liveness.check() == ring::WaitStatus::kForked;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  writer.publish(std::move(held));
  CHECK_EQ(channel->log().next_seq.load(), uint64_t{3});
}

CHECK_MAIN
