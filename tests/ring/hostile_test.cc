// A client that writes nonsense into its ring: the reader says what is wrong and touches nothing.
#include "check.h"
#include "fixture.h"

using namespace fixture;

namespace {

// Appends one good entry, damages its header, and returns what the server's reader says.
std::string damage(const std::function<void(ring::EntryHeader&, ring::LogHeader&)>& change,
                   uint64_t payload_bytes = 0) {
  auto channel = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  const std::vector<std::byte> payload(payload_bytes);
  writer.append(kCall, Body{1, 1}, 0, {}, payload);
  auto& header = *reinterpret_cast<ring::EntryHeader*>(channel->ring());
  change(header, channel->log());
  auto other = server_side(*channel);
  ring::Reader reader(other->log_view(), ring::Reader::Mode::kServer, 0);
  ring::EntryView entry;
  if (reader.next(&entry) != ring::Reader::Next::kDamaged) return "";
  CHECK(reader.next(&entry) == ring::Reader::Next::kDamaged);  // final
  return reader.error();
}

bool says(const std::string& error, const char* part) {
  if (error.find(part) != std::string::npos) return true;
  std::cerr << "[" << error << "] does not say [" << part << "]\n";
  return false;
}

}  // namespace

TEST(sizes) {
  for (const uint32_t size : {0u, 1u, 16u, 47u, 50u, 128u, 4096u, 4112u, 0xfffffff0u, 0xffffffffu})
    CHECK(says(damage([&](auto& h, auto&) { h.size = size; }), "size ["));
  CHECK(says(damage([](auto& h, auto&) { h.size = 49; }), "size [49]"));
}

TEST(pads) {
  // A pad that does not end at the ring's end would let the reader wander.
  CHECK(says(damage([](auto& h, auto&) { h.call = 0; }), "size ["));
  CHECK(says(damage([](auto& h, auto&) { h.call = 0, h.size = 16; }), "size [16]"));
}

TEST(calls_flags_and_sequence) {
  CHECK(says(damage([](auto& h, auto&) { h.call = 10; }), "call [10]"));
  CHECK(says(damage([](auto& h, auto&) { h.call = 63; }), "call [63]"));
  CHECK(says(damage([](auto& h, auto&) { h.flags = 0x8000; }), "flags ["));
  CHECK(says(damage([](auto& h, auto&) { h.seq = 0; }), "sequence number [0]"));
}

TEST(reply_slots) {
  CHECK(says(damage([](auto& h, auto&) { h.flags = ring::kWantsReply; }), "reply slot ["));
  CHECK(says(damage([](auto& h, auto&) { h.flags = ring::kWantsReply, h.reply_slot = 256; }),
             "reply slot [256]"));
  CHECK(says(damage([](auto& h, auto&) { h.reply_slot = 3; }), "reply slot [3]"));
}

TEST(payloads) {
  CHECK(says(damage([](auto& h, auto&) { h.payload_bytes = 8; }), "payload without flag"));
  CHECK(says(damage([](auto& h, auto&) { h.payload_bytes = 8193; }, 64), "payload bytes [8193]"));
  CHECK(says(damage([](auto& h, auto&) { h.payload_bytes = 0; }, 64), "payload bytes [0]"));
  CHECK(
      says(damage([](auto& h, auto&) { h.payload_bytes = ~uint64_t{0}; }, 64), "payload bytes ["));
  CHECK(says(damage([](auto& h, auto&) { h.payload_position = 8190; }, 64), "payload bytes [64]"));
  CHECK(says(damage([](auto& h, auto&) { h.payload_position = 8192; }, 64), "payload position ["));
  CHECK(says(damage([](auto& h, auto&) { h.payload_position = ~uint64_t{0} << 13; }, 64),
             "payload position ["));
}

TEST(cursors) {
  for (const uint64_t appended : {uint64_t{8}, uint64_t{72}, uint64_t{1} << 40, ~uint64_t{0}})
    CHECK(says(damage([&](auto&, auto& log) { log.appended = appended; }), "is at ["));
}

TEST(headers_of_the_objects) {
  std::string error;
  ring::LogView view;
  const auto check = [&](const std::function<void(ring::LogHeader&)>& change) {
    auto channel = make_channel(small_shape());
    change(channel->log());
    return ring::make_log_view(&channel->log(), channel->sizes().log, &view);
  };
  CHECK_EQ(check([](auto&) {}), std::string());
  CHECK(says(check([](auto& h) { h.magic = 1; }), "magic [1]"));
  CHECK(says(check([](auto& h) { h.version = 9; }), "version [9]"));
  CHECK(says(check([](auto& h) { h.ring_bytes = uint64_t{1} << 40; }), "ring does not fit"));
  CHECK(says(check([](auto& h) { h.ring_bytes = 0; }), "ring does not fit"));
  CHECK(says(check([](auto& h) { h.ring_offset = 5; }), "ring does not fit"));
  CHECK(says(check([](auto& h) { h.arena_offset = ~uint64_t{4095}; }), "arena does not fit"));
  CHECK(says(check([](auto& h) { h.object_log_bytes = 100; }), "object log does not fit"));
}

TEST(a_breach_ends_only_the_server) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  ServerThread server(*channel, [](server::Session&, const ring::EntryHeader& header, auto, auto) {
    return server::Status::broken("call [" + std::to_string(header.call) + "] is unknown");
  });
  writer.append(kCall, Body{});
  CHECK(server.join() == server::Loop::End::kProtocolError);
  CHECK(says(server.error(), "entry [1]: call [64] is unknown"));
}

TEST(fence_of_a_dead_stream_or_word) {
  for (const auto& mark : {ring::FenceMark{77, 0, 0, 1}, ring::FenceMark{0, 65536, 0, 1}}) {
    auto channel = make_channel(small_shape());
    ring::ClientLiveness liveness(*channel, -1);
    ring::Writer writer(*channel, liveness);
    ServerThread server(*channel, nullptr);
    writer.append(static_cast<uint16_t>(ring::Mark::kFence), mark);
    CHECK(server.join() == server::Loop::End::kProtocolError);
  }
}

CHECK_MAIN
