// Writer, reader and object log over one in-memory channel.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "check.h"
#include "fixture.h"
#include "ring/object_log.h"

using namespace fixture;

namespace {

// Plays the server in the same thread: consumes everything and hands back the entries.
struct Consumer {
  explicit Consumer(const ring::Channel& channel)
      : channel(channel), reader(channel.log_view(), ring::Reader::Mode::kServer, 0) {}
  std::vector<Body> drain() {
    std::vector<Body> bodies;
    ring::EntryView entry;
    while (reader.next(&entry) == ring::Reader::Next::kEntry) {
      bodies.push_back(body_of(entry.body));
      channel.control().consumed = reader.position();
    }
    ++channel.control().consumed_futex;
    ring::futex_wake(channel.control().consumed_futex);
    return bodies;
  }
  const ring::Channel& channel;
  ring::Reader reader;
};

std::vector<std::byte> bytes(size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

std::vector<uint64_t> object_keys(const ring::Channel& channel) {
  std::vector<uint64_t> keys;
  std::string error;
  const bool good = ring::for_each_object(
      channel.log_view(),
      [&](const ring::EntryHeader&, std::span<const std::byte> body, std::span<const std::byte>) {
        keys.push_back(ring::object_key(body));
      },
      &error);
  CHECK(good);
  return keys;
}

}  // namespace

ring::CutMark last_cut(const ring::Channel& channel) {
  ring::CutMark mark{};
  ring::Reader reader = ring::Reader::trace(channel.log_view());
  for (ring::EntryView entry; reader.next(&entry) == ring::Reader::Next::kEntry;)
    if (entry.header.call == static_cast<uint16_t>(ring::Mark::kCut))
      std::memcpy(&mark, entry.body.data(), sizeof mark);
  return mark;
}

TEST(entries_wrap_and_pad) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  uint64_t expected = 0;
  // Sizes that do not divide the ring: the pad takes every length, also less than a header.
  for (int round = 0; round < 500; ++round) {
    const auto tail = bytes(static_cast<size_t>(round * 7 % 300), round);
    for (int i = 0; i < 3; ++i)
      CHECK(bool(writer.append(kCall, Body{7, expected + static_cast<uint64_t>(i)}, 0, tail)));
    const auto got = consumer.drain();
    CHECK_EQ(got.size(), size_t{3});
    for (const Body& body : got) CHECK_EQ(body.value, expected++);
    CHECK(bool(writer.cut()));
    consumer.drain();
  }
  CHECK(consumer.reader.error().empty());
  CHECK(channel->log().appended > 50 * channel->ring_bytes());
  CHECK_EQ(channel->log().forced_cuts.load(), uint64_t{0});
}

TEST(payloads_are_contiguous_across_the_wrap) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  ring::Reader reader(channel->log_view(), ring::Reader::Mode::kServer, 0);
  ring::EntryView entry;
  for (int i = 0; i < 200; ++i) {
    const auto payload = bytes(static_cast<size_t>(1 + i * 37 % 2048), i);
    CHECK(bool(writer.append(kCall, Body{1, 2}, 0, {}, payload)));
    CHECK(reader.next(&entry) == ring::Reader::Next::kEntry);
    CHECK_EQ(entry.payload.size(), payload.size());
    CHECK(std::equal(payload.begin(), payload.end(), entry.payload.begin()));
    channel->control().consumed = reader.position();
    writer.cut();
    CHECK(reader.next(&entry) == ring::Reader::Next::kEntry);
    channel->control().consumed = reader.position();
  }
  CHECK(reader.error().empty());
}

TEST(too_large_is_refused) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  CHECK(writer.begin(kCall, 100'000).status() == ring::WaitStatus::kTooLarge);
  CHECK(writer.begin(kCall, 16, 0, 100'000).status() == ring::WaitStatus::kTooLarge);
  CHECK(bool(writer.append(kCall, Body{})));
}

TEST(memory_comes_as_it_is_used) {
  ring::ChannelShape shape = small_shape();
  shape.ring_bytes = uint64_t{16} << 20;
  shape.arena_bytes = uint64_t{32} << 20;
  auto channel = make_channel(shape);
  AlwaysAlive alive;
  Consumer consumer(*channel);
  ring::Writer writer(*channel, alive);
  const auto used = [&] {
    struct stat status;
    CHECK_EQ(fstat(channel->log_fd(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  };
  const uint64_t at_first = used();
  CHECK(at_first < shape.ring_bytes / 2);
  const auto payload = bytes(1 << 20, 5);
  while (channel->log().arena_head < shape.arena_bytes * 2) {
    CHECK(bool(writer.append(kCall, Body{1, 2}, 0, bytes(100'000, 1), payload)));
    consumer.drain();
    writer.cut();
  }
  CHECK(used() >= at_first + shape.arena_bytes);
  CHECK(used() <= shape.ring_bytes + shape.arena_bytes + shape.object_log_bytes + 65536);
}

TEST(missing_memory_is_an_answer) {
  ring::ChannelShape shape = small_shape();
  shape.arena_bytes = uint64_t{32} << 20;
  auto channel = make_channel(shape);
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(dup2(null, channel->log_fd()) >= 0);  // which gives no memory
  CHECK(writer.begin(kCall, 16, 0, 1000).status() == ring::WaitStatus::kNoMemory);
  CHECK(bool(writer.append(kCall, Body{})));  // behind the ring there is some already
  close(null);
}

TEST(abandoned_entry_leaves_no_trace) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  {
    ring::Entry entry = writer.begin(kCall, 64);
  }
  CHECK(bool(writer.append(kCall, Body{1, 42})));
  const auto got = consumer.drain();
  CHECK_EQ(got.size(), size_t{1});
  CHECK_EQ(got.at(0).value, uint64_t{42});
}

TEST(full_ring_forces_a_cut) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  std::atomic<bool> done{false};
  // Without a cut of the program: the writer makes room when the other side has consumed.
  std::thread other([&] {
    Consumer consumer(*channel);
    uint64_t next = 0;
    while (!done || next < 5000)
      for (const Body& body : consumer.drain()) CHECK_EQ(body.value, next++);
    CHECK_EQ(next, uint64_t{5000});
  });
  for (uint64_t i = 0; i < 5000; ++i) CHECK(bool(writer.append(kCall, Body{3, i})));
  done = true;
  other.join();
  CHECK(channel->log().forced_cuts > 10);
}

TEST(full_ring_with_a_dead_server_is_an_error) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  ring::ControlPage& page = channel->control();
  std::strcpy(page.status_text, "the server was killed by signal [9]");
  page.status = static_cast<uint32_t>(ring::ChannelStatus::kServerDead);
  ring::Appended last;
  for (int i = 0; i < 1000 && last; ++i) last = writer.append(kCall, Body{});
  CHECK(last.status == ring::WaitStatus::kServerDead);
  const std::string sentence = liveness.sentence(last.status);
  CHECK(sentence.find("killed by signal [9]") != std::string::npos);
  CHECK(sentence.find("device [0]") != std::string::npos);
}

TEST(consumed_but_uncommitted_is_kept) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  for (uint64_t i = 0; i < 20; ++i) writer.append(kCall, Body{0, i});
  consumer.drain();
  // All consumed, nothing committed: a replay from 0 still sees every entry.
  ring::Reader replay(channel->log_view(), ring::Reader::Mode::kServer,
                      channel->log().committed.load());
  ring::EntryView entry;
  uint64_t count = 0;
  while (replay.next(&entry) == ring::Reader::Next::kEntry)
    CHECK_EQ(body_of(entry.body).value, count++);
  CHECK_EQ(count, uint64_t{20});
}

// However much the server has consumed: what is behind the last snapshot is what a replay needs.
TEST(the_log_is_freed_only_behind_a_snapshot) {
  auto channel = make_channel(small_shape());
  channel->control().protect = static_cast<uint32_t>(ring::Protect::kSnapshot);
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  uint64_t value = 0;
  const auto step = [&] {
    for (int i = 0; i < 4; ++i) CHECK(bool(writer.append(kCall, Body{0, value++})));
    CHECK(bool(writer.cut()));
    consumer.drain();
    return channel->log().appended.load();
  };
  const uint64_t first = step();
  step();
  CHECK_EQ(channel->log().committed.load(), uint64_t{0});
  channel->control().snapshot_cut = 1;
  const uint64_t third = step();
  CHECK_EQ(channel->log().committed.load(), first);
  ring::Reader replay(channel->log_view(), ring::Reader::Mode::kServer, first);
  ring::EntryView entry;
  CHECK(replay.next(&entry) == ring::Reader::Next::kEntry);
  CHECK_EQ(body_of(entry.body).value, uint64_t{4});
  channel->control().snapshot_cut = 3;
  step();
  CHECK_EQ(channel->log().committed.load(), third);
  CHECK_EQ(channel->log().forced_cuts.load(), uint64_t{0});
}

// A replay comes to calls that were answered, and whose slots other calls have by now.
TEST(an_answer_that_was_given_is_not_given_again) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  const auto answer = [&](server::Session& session, uint32_t slot, uint64_t seq, uint64_t value) {
    ring::EntryHeader header{};
    header.flags = ring::kWantsReply;
    header.reply_slot = static_cast<uint16_t>(slot);
    header.seq = seq;
    CHECK(session.reply(header, 0, std::span(&value, 1), {}).ok());
  };
  const auto told = [&](uint32_t slot) { return channel->slot(slot).values[0]; };
  {
    const auto first = server_side(*channel);
    server::Session session(*first, nullptr, alive);
    answer(session, 3, 7, 111);
    answer(session, 4, 8, 222);
    answer(session, 4, 9, 333);
  }
  CHECK(bool(writer.append(kCall, Body{1, 1})));
  consumer.drain();
  const auto next = server_side(*channel);
  server::Session session(*next, nullptr, alive);
  answer(session, 3, 7, 999);  // the same call
  answer(session, 4, 8, 999);  // one before that of the slot
  CHECK_EQ(told(3), uint64_t{111});
  CHECK_EQ(told(4), uint64_t{333});
  CHECK_EQ(channel->slot(4).done_seq.load(), uint64_t{9});
  CHECK_EQ(channel->control().compared.load(), uint64_t{1});
  answer(session, 4, 10, 444);  // which the server before has not come to
  CHECK_EQ(told(4), uint64_t{444});
  CHECK_EQ(channel->slot(4).done_seq.load(), uint64_t{10});
}

TEST(trace_reads_from_the_oldest_whole_entry) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  for (uint64_t i = 0; i < 300; ++i) {
    writer.append(kCall, Body{0, i}, 0, bytes(static_cast<size_t>(i % 90), 1));
    consumer.drain();
    if (i % 10 == 0) writer.cut();
    consumer.drain();
  }
  ring::Reader reader = ring::Reader::trace(channel->log_view());
  ring::EntryView entry;
  uint64_t first = 0, last = 0;
  while (reader.next(&entry) == ring::Reader::Next::kEntry) {
    if (!first) first = entry.header.seq;
    last = entry.header.seq;
  }
  CHECK(reader.error().empty());
  CHECK_EQ(last, channel->log().next_seq.load() - 1);
  CHECK(last - first > 20);  // most of the ring is there
}

TEST(creations_are_folded_and_destroyed_ones_dropped) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  for (uint64_t key = 1; key <= 5; ++key)
    writer.append(kCall, Body{key, 0}, ring::kCreates, {}, bytes(100, static_cast<int>(key)));
  writer.append(kCall + 1, Body{2, 0}, ring::kDestroys);
  const auto failed = writer.append(kCall, Body{6, 0}, ring::kCreates);
  writer.forget_creation(failed.seq);  // before the cut
  CHECK(object_keys(*channel).empty());
  writer.cut();
  CHECK(object_keys(*channel) == (std::vector<uint64_t>{1, 3, 4, 5}));
  const auto late = writer.append(kCall, Body{7, 0}, ring::kCreates);
  writer.cut();
  writer.forget_creation(late.seq);  // after the cut
  CHECK(object_keys(*channel) == (std::vector<uint64_t>{1, 3, 4, 5}));
}

// Each cut says whether the client has found out what is live there.
TEST(cuts_that_will_not_be_snapshotted_say_so) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  ring::ControlPage& page = channel->control();
  const auto cut = [&] {
    const bool counts = writer.next_cut_counts();
    writer.cut();
    CHECK_EQ(counts, !last_cut(*channel).passed_over);
    return counts;
  };
  CHECK(cut());  // no server has said anything
  page.cut_every = 4;
  CHECK(cut());  // and this will be the first one
  page.snapshot_cut = 2;
  CHECK(!cut());
  CHECK(cut());
  CHECK(!cut());
  writer.cut();  // nothing has asked
  CHECK(!last_cut(*channel).passed_over);
  page.cut_every = 1;
  CHECK(cut());
}

// What is live is found out again when another thread may have changed it meanwhile. Ranks count
// alike: a cut that is overtaken each time is passed over, but not left out.
TEST(an_overtaken_cut_is_tried_again_then_passed_over_and_counts) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  const std::vector<std::byte> scope(sizeof(ring::CutScope));
  CHECK_EQ(writer.cut(scope, writer.next_seq()).seq, 1u);
  CHECK(!last_cut(*channel).passed_over);
  const auto overtake = [&] {
    const uint64_t expected = writer.next_seq();
    writer.append(kCall, Body{1, 5}, 0);
    return writer.cut(scope, expected).seq;
  };
  CHECK_EQ(overtake(), 0u);
  CHECK_EQ(last_cut(*channel).step, 1u);  // nothing was appended
  CHECK_EQ(writer.cut(scope, writer.next_seq()).seq, 3u);
  CHECK(!last_cut(*channel).passed_over);
  CHECK_EQ(last_cut(*channel).step, 2u);
  for (int i = 1; i < ring::Writer::kCutTries; ++i) CHECK_EQ(overtake(), 0u);
  CHECK_EQ(last_cut(*channel).step, 2u);
  CHECK(overtake() != 0);
  CHECK(last_cut(*channel).passed_over);
  CHECK_EQ(last_cut(*channel).step, 3u);
  CHECK(writer.cut(scope, writer.next_seq()).seq != 0);
  CHECK(!last_cut(*channel).passed_over);
}

// Such as a thread that looks whether collectives have completed: the memory is as it was.
TEST(an_observation_of_another_thread_does_not_overtake_a_cut) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  const std::vector<std::byte> scope(sizeof(ring::CutScope));
  writer.append(kCall, Body{1, 5}, 0);
  const uint64_t expected = writer.next_seq();
  writer.observed(17, 0, 1);
  CHECK_EQ(writer.cut(scope, expected).seq, expected + 1);
  CHECK(!last_cut(*channel).passed_over);
}

TEST(nothing_comes_after_goodbye) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  while (channel->log().appended < channel->ring_bytes() / 2) writer.append(kCall, Body{1, 42});
  CHECK(bool(writer.goodbye()));
  const uint64_t last = channel->log().appended;
  CHECK(writer.append(kCall, Body{1, 43}).status == ring::WaitStatus::kEnding);
  CHECK(writer.observed(17, 0, 1).status == ring::WaitStatus::kEnding);
  CHECK(writer.goodbye().status == ring::WaitStatus::kEnding);
  CHECK_EQ(channel->log().appended.load(), last);
}

TEST(same_setting_is_folded_once) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  for (int i = 0; i < 10; ++i) writer.append(kCall, Body{1, 5}, ring::kCreates);
  writer.append(kCall, Body{1, 6}, ring::kCreates);
  writer.cut();
  CHECK_EQ(object_keys(*channel).size(), size_t{2});
}

using pyft::Handle;
using pyft::HandleKind;

uint64_t handle(HandleKind kind, uint32_t index) {
  return Handle::make(kind, index, 1).value;
}

// What a new server needs is there as long as something is made of it, whatever has ended.
TEST(ended_objects_stay_while_others_need_them) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  const uint64_t memory = handle(HandleKind::kPhysicalMemory, 1), address = 0x1800'0000'0000;
  writer.append(kCall, Body{memory, 0}, ring::kCreates);
  writer.append(kCall + 1, Body{address, memory}, ring::kCreates);
  writer.append(kCall + 2, Body{memory, 0}, ring::kDestroys);
  writer.cut();
  CHECK(object_keys(*channel) == (std::vector<uint64_t>{memory, address, memory}));
  writer.append(kCall + 3, Body{address, 0}, ring::kDestroys);
  writer.cut();
  CHECK(object_keys(*channel).empty());
}

TEST(kernels_end_with_their_module) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  const uint64_t module = handle(HandleKind::kModule, 1), kernel = handle(HandleKind::kKernel, 1);
  writer.append(kCall, Body{module, 0}, ring::kCreates);
  writer.append(kCall + 1, Body{kernel, module}, ring::kCreates);
  writer.append(kCall + 2, Body{module, 0}, ring::kDestroys);
  writer.cut();
  CHECK(object_keys(*channel).empty());
}

TEST(a_captured_graph_is_kept_with_all_it_needs) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  const uint64_t module = handle(HandleKind::kModule, 1), kernel = handle(HandleKind::kKernel, 1);
  const uint64_t event = handle(HandleKind::kEvent, 1), stream = handle(HandleKind::kStream, 1);
  const uint64_t graph = handle(HandleKind::kGraph, 1), exec = handle(HandleKind::kGraphExec, 1);
  constexpr uint16_t kBegin = kCall + 10, kLaunch = kCall + 11, kEnd = kCall + 12;
  writer.append(kCall, Body{module, 0}, ring::kCreates);
  writer.append(kCall + 1, Body{kernel, module}, ring::kCreates);
  writer.append(kCall + 2, Body{event, 0}, ring::kCreates);
  // One that ends without a graph, and is forgotten.
  writer.append(kBegin, Body{stream, 0}, ring::kStreamCaptured);
  writer.append(kLaunch, Body{kernel, stream}, ring::kStreamCaptured);
  const uint16_t ends = ring::kStreamCaptured | ring::kCreates;
  writer.forget_creation(writer.append(kEnd, Body{graph, stream}, ends).seq);
  writer.append(kBegin, Body{stream, 0}, ring::kStreamCaptured);
  writer.append(kLaunch, Body{kernel, stream}, ring::kStreamCaptured);
  writer.cut();  // in the middle of it
  writer.append(kLaunch + 5, Body{event, stream}, ring::kStreamCaptured);
  writer.append(kCall + 3, Body{event, 0}, ring::kDestroys);  // named by what has been captured
  const uint64_t next = Handle::make(HandleKind::kEvent, 1, 2).value;  // in the place of that
  writer.append(kCall + 2, Body{next, 0}, ring::kCreates);
  CHECK(object_keys(*channel) == (std::vector<uint64_t>{module, kernel, event, stream, kernel}));
  writer.append(kEnd, Body{graph, stream}, ends);
  writer.append(kCall + 4, Body{exec, graph}, ring::kCreates);
  writer.append(kCall + 5, Body{graph, 0}, ring::kDestroys);
  writer.append(kCall + 6, Body{module, 0}, ring::kDestroys);
  writer.cut();
  CHECK(object_keys(*channel) ==
        (std::vector<uint64_t>{module, kernel, event, stream, kernel, event, event, next, graph,
                               exec, graph, module}));
  writer.append(kCall + 7, Body{exec, 0}, ring::kDestroys);
  writer.append(kCall + 3, Body{next, 0}, ring::kDestroys);
  writer.cut();
  CHECK(object_keys(*channel).empty());
  CHECK_EQ(writer.object_log().live_bytes(), uint64_t{0});
}

TEST(object_log_is_compacted) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  std::set<uint64_t> live;
  for (uint64_t key = 1; key <= 400; ++key) {
    writer.append(kCall, Body{key, key}, ring::kCreates, {}, bytes(key % 700, 9));
    live.insert(key);
    if (key > 5) {
      writer.append(kCall + 1, Body{key - 5, 0}, ring::kDestroys);
      live.erase(key - 5);
    }
    writer.cut();
    consumer.drain();
  }
  const auto keys = object_keys(*channel);
  CHECK(std::set<uint64_t>(keys.begin(), keys.end()) == live);
  CHECK_EQ(keys.size(), live.size());
  CHECK(writer.object_log().compactions() > 5);
  CHECK_EQ(channel->log().object_log_lost.load(), uint64_t{0});
}

TEST(full_object_log_is_counted_and_survived) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  for (uint64_t key = 1; key <= 40; ++key) {
    CHECK(bool(writer.append(kCall, Body{key, 0}, ring::kCreates, {}, bytes(1000, 1))));
    writer.cut();
    consumer.drain();
  }
  CHECK(channel->log().object_log_lost > 0);
  CHECK(object_keys(*channel).size() >= 10);
}

// A client without room makes the job unprotected for as long as it lives, and that is said.
TEST(objects_without_room_are_missing_until_they_end) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  const auto append = [&](uint16_t flags, uint64_t key, size_t payload) {
    CHECK(bool(writer.append(kCall, Body{key, 0}, flags, {}, bytes(payload, 1))));
    writer.cut();
    consumer.drain();
  };
  const std::atomic<uint64_t>& missing = channel->log().objects_missing;
  for (uint64_t key = 1; key <= 20; ++key) append(ring::kCreates, key, 1000);
  const uint64_t first = 21 - missing;
  CHECK(missing > 0 && first > 10);
  append(ring::kCreates, first, 1000);  // something more of the same object
  CHECK_EQ(missing.load(), 21 - first);
  append(ring::kDestroys, 1, 0);  // one that is there: no help to one that was not
  CHECK_EQ(missing.load(), 21 - first);
  for (uint64_t key = first; key <= 20; ++key) append(ring::kDestroys, key, 0);
  CHECK_EQ(missing.load(), uint64_t{0});
  CHECK_EQ(writer.object_log().missing(), uint64_t{0});
  for (uint64_t key = 2; key <= 10; ++key) append(ring::kDestroys, key, 0);
  append(ring::kCreates, 50, 1000);  // where they were
  CHECK_EQ(missing.load(), uint64_t{0});
  // One that has not come to be on the server.
  for (uint64_t key = 60; !missing; ++key) append(ring::kCreates, key, 1000);
  writer.forget_creation(channel->log().next_seq - 2);  // behind it is the cut
  CHECK_EQ(missing.load(), uint64_t{0});
}

// A server that follows must not make it after all: the program uses its address for something
// else.
TEST(what_a_server_has_refused_says_so_in_the_ring) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  const uint64_t graph = handle(HandleKind::kGraph, 1), stream = handle(HandleKind::kStream, 1);
  const uint64_t comm = handle(HandleKind::kCommunicator, 1);
  writer.append(kCall, Body{1, 0}, ring::kCreates);
  writer.forget_creation(writer.append(kCall, Body{2, 0}, ring::kCreates).seq);
  writer.append(kCall, Body{stream, 0}, ring::kStreamCaptured);
  const uint16_t ends = ring::kStreamCaptured | ring::kCreates;
  writer.forget_creation(writer.append(kCall, Body{graph, stream}, ends).seq);
  writer.forget_creation(writer.append(kCall, Body{comm, 0}, ring::kCreates).seq);
  ring::Reader reader(channel->log_view(), ring::Reader::Mode::kServer, 0);
  ring::EntryView entry;
  std::vector<bool> refused, marked;
  while (reader.next(&entry) == ring::Reader::Next::kEntry) {
    refused.push_back(ring::is_refused(entry.header, entry.body));
    marked.push_back(entry.header.flags & ring::kRefused);
  }
  CHECK_EQ(reader.error(), "");
  CHECK(refused == (std::vector<bool>{false, true, false, false, false}));
  CHECK(marked == (std::vector<bool>{false, true, false, false, true}));
}

TEST(a_captured_graph_without_room_is_missing_as_a_whole) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  Consumer consumer(*channel);
  const auto append = [&](uint16_t call, uint16_t flags, uint64_t key) {
    CHECK(bool(writer.append(call, Body{key, 0}, flags, {}, bytes(1000, 1))));
    writer.cut();
    consumer.drain();
  };
  append(kCall, ring::kStreamCaptured, 7);
  for (int i = 0; i < 30; ++i) append(kCall + 1, ring::kStreamCaptured, 7);
  append(kCall + 2, ring::kStreamCaptured | ring::kCreates, 9);
  CHECK_EQ(channel->log().objects_missing.load(), uint64_t{1});
  CHECK_EQ(object_keys(*channel).size(), size_t{0});
  append(kCall + 3, ring::kDestroys, 9);
  CHECK_EQ(channel->log().objects_missing.load(), uint64_t{0});
}

// The server keeps something from one snapshot to the next, and its room fills.
TEST(a_cut_that_the_server_asks_for_is_made_once) {
  auto channel = make_channel(small_shape());
  channel->control().protect = static_cast<uint32_t>(ring::Protect::kSnapshot);
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  const auto append = [&] { CHECK(bool(writer.append(kCall, Body{1, 1}))); };
  append();
  CHECK_EQ(channel->log().forced_cuts.load(), uint64_t{0});
  channel->control().cuts_wanted.fetch_add(1);
  for (int i = 0; i < 5; ++i) append();
  CHECK_EQ(channel->log().forced_cuts.load(), uint64_t{1});
  channel->control().cuts_wanted.fetch_add(2);
  append();
  CHECK_EQ(channel->log().forced_cuts.load(), uint64_t{2});
  CHECK(bool(writer.goodbye()));
  channel->control().cuts_wanted.fetch_add(1);
  CHECK(!writer.append(kCall, Body{1, 1}));
  CHECK_EQ(channel->log().forced_cuts.load(), uint64_t{2});
}

CHECK_MAIN
