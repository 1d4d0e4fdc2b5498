// What is on the wire is pinned: tests/unit/test_wire.py holds the same bytes against Python.
#include <sys/socket.h>

#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "check.h"
#include "pyft/unique_fd.h"
#include "server/recovery/agent_link.h"

namespace ring = pyft::ring;
namespace server = pyft::server;
namespace msg = pyft::ring::msg;

namespace {

// As one packet of a socket, in hexadecimal digits.
template <typename Message>
std::string sent(const Message& message, std::string_view payload = {}) {
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const pyft::UniqueFd ours(ends[0]), theirs(ends[1]);
  server::send_message(ours.get(), message, std::as_bytes(std::span(payload)));
  unsigned char bytes[256];
  const ssize_t count = recv(theirs.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  std::string digits;
  char two[3];
  for (ssize_t i = 0; i < count; ++i) {
    std::snprintf(two, sizeof two, "%02x", bytes[i]);
    digits += two;
  }
  return digits;
}

const std::string kZero(16, '0');

TEST(words_lie_where_they_always_did) {
  CHECK_EQ(sent(msg::Live{}), "5046544d01000000" + kZero + kZero + kZero + kZero);
  CHECK_EQ(sent(msg::WantExport{
               .key = 0x1122334455667788, .rank = 3, .reason = msg::ExportReason::kDividing}),
           "5046544d02000000"
           "8877665544332211"
           "0300000000000000"
           "0200000000000000" +
               kZero);
  CHECK_EQ(sent(msg::Audited{.entry = 50, .differing = 2, .fresh = 1, .bytes = 100}),
           "5046544d21000000"
           "3200000000000000"
           "0200000001000000"
           "6400000000000000" +
               kZero);
  CHECK_EQ(sent(msg::Left{.key = 7, .rank = msg::kMinter}),
           "5046544d74000000"
           "0700000000000000"
           "ffffffffffffffff" +
               kZero + kZero);
  CHECK_EQ(sent(msg::Commit{.step = 9, .final = true}),
           "5046544d6a000000"
           "0900000000000000"
           "0100000000000000" +
               kZero + kZero);
  CHECK_EQ(sent(msg::Fault{.fault = 2, .code = -700, .entry = 5}, "why"),
           "5046544d1e000000"
           "0200000000000000"
           "44fdffff00000000"
           "0500000000000000"
           "0300000000000000"
           "776879");
  CHECK_EQ(sent(msg::Exported{.key = 7, .rank = 1, .result = 5, .repair = 6}, "i"),
           "5046544d04000000"
           "0700000000000000"
           "0100000000000000"
           "0500000006000000"
           "0100000000000000"
           "69");
}

TEST(what_has_come_is_of_one_kind) {
  server::AgentMessage message{ring::MessageKind::kExport, {7, 2, UINT64_MAX - 1}, {}, -1};
  CHECK(!message.as<msg::Join>());
  const auto answer = message.as<msg::Export>();
  CHECK(answer && answer->key == 7 && answer->rank == 2);
  CHECK(answer->answer == msg::ExportAnswer::kOthersEnded);
  const auto fault = msg::Fault::of({2, 0xfffffd44, 5});
  CHECK_EQ(fault.code, -700);
  const auto exported = msg::Exported::of({7, 1, uint64_t{6} << 32 | 5});
  CHECK(exported.result == 5 && exported.repair == 6);
  CHECK_EQ(msg::Left::of({7, UINT64_MAX, 0}).rank, msg::kMinter);
}

}  // namespace

CHECK_MAIN
