// What the ring costs: appending a command, and a synchronous call answered by another process.
// Prints median (min to max, n); one figure per line.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "ring/completion.h"
#include "ring/fixture.h"
#include "ring/reply.h"

using namespace fixture;

namespace {

constexpr int kRounds = 15;

void print(const char* name, const char* unit, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("  %-46s %9.1f (%.1f to %.1f, %zu) %s\n", name, values[values.size() / 2],
              values.front(), values.back(), values.size(), unit);
}

template <class Work>
std::vector<double> measure(int rounds, uint64_t count, Work&& work) {
  std::vector<double> result;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t start = ring::now_ns();
    for (uint64_t i = 0; i < count; ++i) work(i);
    result.push_back(static_cast<double>(ring::now_ns() - start) / static_cast<double>(count));
  }
  return result;
}

server::Status echo(server::Session& session, const ring::EntryHeader& header,
                    std::span<const std::byte>, std::span<const std::byte>) {
  return session.reply(header, 0, std::span(&header.seq, 1));
}

pid_t start_server(const ring::Channel& channel) {
  const pid_t child = fork();
  if (child != 0) return child;
  AlwaysAlive alive;
  auto other = server_side(channel);
  server::Session session(*other, nullptr, alive);
  server::Loop loop(session, echo);
  loop.run();
  _exit(0);
}

void bench_enqueue(ring::Writer& writer) {
  struct Launch {
    uint64_t words[16];
  };
  constexpr uint64_t kCount = 20'000;
  const auto append = [&](uint64_t i) {
    writer.append(kCall, Launch{{i}});
    if (i % 2000 == 1999) writer.cut();
  };
  measure(2, kCount, append);
  print("append, 128 bytes of body, server awake", "ns", measure(kRounds, kCount, append));
  std::vector<double> bursts;
  for (int round = 0; round < kRounds; ++round) {
    (void)writer.wait_consumed_all();
    usleep(2000);  // let it fall asleep
    bursts.push_back(measure(1, 1, append).front());
  }
  print("append, 128 bytes, wakes the server", "ns", bursts);
  const std::vector<std::byte> payload(64 << 10);
  const auto copy = [&](uint64_t i) {
    writer.append(kCall, Launch{{i}}, 0, {}, payload);
    if (i % 100 == 99) writer.cut();
  };
  print("append with a payload of 64 KiB", "ns", measure(kRounds, 500, copy));
}

void bench_round_trip(ring::Writer& writer, const ring::Liveness& liveness) {
  ring::ReplySlots slots;
  const auto call = [&](uint64_t) {
    ring::ReplyTicket ticket(slots);
    const auto sent = writer.append(kCall, Body{}, ring::kWantsReply, {}, {}, ticket.slot());
    if (ring::wait_reply(writer.channel(), ticket.slot(), sent.seq, liveness) !=
            ring::WaitStatus::kOk ||
        writer.channel().slot(ticket.slot()).values[0] != sent.seq)
      std::abort();
  };
  measure(1, 1000, call);
  auto values = measure(kRounds, 2000, call);
  for (double& value : values) value /= 1000;
  print("synchronous call, answered by another process", "us", values);
  const auto fence = [&](uint64_t) {
    static uint64_t value = 0;
    writer.fence(0, 30, ++value);
    (void)ring::wait_word(writer.channel(), 30, value, liveness);
  };
  values = measure(kRounds, 2000, fence);
  for (double& value : values) value /= 1000;
  print("fence and wait for its completion word", "us", values);
}

}  // namespace

int main() {
  ring::ChannelShape shape;
  shape.arena_bytes = uint64_t{64} << 20;
  auto channel = make_channel(shape);
  const pid_t server = start_server(*channel);
  {
    AlwaysAlive alive;
    ring::Writer writer(*channel, alive);
    bench_enqueue(writer);
    bench_round_trip(writer, alive);
    writer.goodbye();
  }
  int status = 0;
  waitpid(server, &status, 0);
  return status;
}
