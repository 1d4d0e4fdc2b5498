#include "transport/join.h"

#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "base/error.h"
#include "transport/endpoint.h"
#include "transport/fault.h"

namespace flexccl {
namespace {

constexpr int kLookMs = 20;
constexpr std::uint64_t kTokenMs = 5000;

enum class Token : std::uint64_t { kDecision = 1, kReceipt = 2 };

std::uint64_t token_mac(const Key& key, const Question& question, Token token) {
  const std::uint64_t text[] = {question.mac, static_cast<std::uint64_t>(token)};
  return keyed_hash64(key, std::as_bytes(std::span(text)));
}

void expect_token(int socket, const Key& key, const Question& question, Token token,
                  Deadline deadline) {
  std::uint64_t mac;
  receive_all(socket, &mac, sizeof mac, deadline, "a word of the repair");
  if (mac != token_mac(key, question, token))
    fail(ncclRemoteError, "a word of the repair is not signed with the key of the job");
}

void send_token(int socket, const Key& key, const Question& question, Token token) {
  const std::uint64_t mac = token_mac(key, question, token);
  send_all(socket, &mac, sizeof mac);
}

bool carries_descriptors(int socket) {
  int domain = AF_UNSPEC;
  socklen_t length = sizeof domain;
  getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length);
  return domain == AF_UNIX;
}

// A conversation within this process: the other side speaks in a thread of its own.
void join_here(Fd socket, const Asked& asked, const Question& question,
               std::span<const std::byte> step) {
  const auto inbox = Endpoint::process().find({asked.comm, question.epoch, asked.slot});
  if (!inbox || !inbox->responder()) fail(ncclRemoteError, "its communicator is gone");
  std::thread([socket = std::move(socket), key = asked.key, question,
               here = std::pair(asked.comm, asked.slot),
               step = std::vector(step.begin(), step.end()), there = inbox->responder()] {
    try {
      JoinVisit visit(socket.get(), key, here, question, step);
      there->join(visit);
    } catch (const Error&) {
      // The new rank is gone.
    }
  }).detach();
}

}  // namespace

JoinCall::JoinCall(const Asked& asked, std::uint32_t own_slot, std::uint32_t epoch)
    : asked_(asked) {
  question_.verb = Verb::kJoin;
  question_.slot = own_slot, question_.epoch = epoch;
  const auto transport = transport_to(asked);
  if (transport == flexcclShm) socket_ = connect_unix(asked.address.process, asked.deadline);
  if (transport == flexcclTcp)
    socket_ = connect_tcp(asked.address.ipv4, asked.address.port, asked.deadline);
}

void JoinCall::speak(std::span<const std::byte> step) {
  const LinkName link{asked_.comm, question_.epoch, question_.slot, asked_.slot};
  if (socket_) {
    hello_ = hello_for(socket_.get(),
                       {.inbox = {asked_.comm, question_.epoch, asked_.slot},
                        .source = question_.slot,
                        .transport = asked_.transport,
                        .key = asked_.key,
                        .deadline = asked_.deadline},
                       LinkKind::kControl);
    sign(&question_, asked_.key, hello_, step);
    fault_in_repair(link);
    return send_question(socket_.get(), hello_, question_, step);
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail(ncclSystemError, "flexccl: no socket pair");
  socket_ = Fd(ends[0]);
  Fd theirs(ends[1]);
  sign(&question_, asked_.key, {}, step);
  fault_in_repair(link);
  join_here(std::move(theirs), asked_, question_, step);
}

void JoinCall::wait_for_welcome() {
  if (transport_to(asked_) == flexcclLoopback) return;
  Welcome welcome;
  receive_all(socket_.get(), &welcome, sizeof welcome, asked_.deadline, "its welcome");
  if (!equal_macs(welcome.mac, welcome_mac(asked_.key, hello_)))
    fail(ncclRemoteError, "its welcome is not signed with the key of the job");
}

Answer JoinCall::wait_for_answer(Deadline deadline, Fd* log) {
  Answer answer;
  std::vector<Fd> fds;
  receive_all(socket_.get(), &answer, sizeof answer, deadline, "its agreement", &fds);
  fault_in_repair({asked_.comm, question_.epoch, question_.slot, asked_.slot});
  if (answer.mac != answer_mac(asked_.key, question_, answer))
    fail(ncclRemoteError, "its answer is not signed with the key of the job");
  if (!fds.empty()) *log = std::move(fds[0]);
  return answer;
}

void JoinCall::decide() {
  fault_in_repair({asked_.comm, question_.epoch, question_.slot, asked_.slot});
  send_token(socket_.get(), asked_.key, question_, Token::kDecision);
}

void JoinCall::wait_for_receipt(Deadline deadline) {
  expect_token(socket_.get(), asked_.key, question_, Token::kReceipt, deadline);
  fault_in_repair({asked_.comm, question_.epoch, question_.slot, asked_.slot});
}

void JoinVisit::may_fail() const {
  fault_in_repair({here_.first, question_.epoch, here_.second, question_.slot});
}

bool JoinVisit::gone() const {
  pollfd look{socket_, POLLRDHUP, {}};
  return poll(&look, 1, 0) != 0;
}

void JoinVisit::answer(Answer answer, int log) {
  may_fail();
  answer.mac = answer_mac(key_, question_, answer);
  const std::span<const int> fds(&log, log >= 0 && carries_descriptors(socket_) ? 1 : 0);
  send_all(socket_, &answer, sizeof answer, fds);
}

bool JoinVisit::comes_decision() {
  pollfd look{socket_, POLLIN, {}};
  if (poll(&look, 1, kLookMs) <= 0) return false;
  expect_token(socket_, key_, question_, Token::kDecision, in_ms(kTokenMs));
  may_fail();
  return true;
}

void JoinVisit::give_receipt() {
  may_fail();
  send_token(socket_, key_, question_, Token::kReceipt);
}

}  // namespace flexccl
