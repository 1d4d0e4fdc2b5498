#include "transport/control.h"

#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "transport/endpoint.h"

namespace flexccl {
namespace {

constexpr std::uint64_t kQuestionMs = 5000;  // a caller has this long to say what it wants
constexpr int kMaxThreads = 256;
std::atomic<int> threads = 0;

std::uint64_t question_mac(const Key& key, const Hello& hello, const Question& question) {
  std::byte text[sizeof hello.mac + offsetof(Question, mac)];
  std::memcpy(text, &hello.mac, sizeof hello.mac);
  std::memcpy(text + sizeof hello.mac, &question, offsetof(Question, mac));
  return keyed_hash64(key, text);
}

std::uint64_t answer_mac(const Key& key, const Question& question, const Answer& answer) {
  std::byte text[sizeof question.mac + offsetof(Answer, mac)];
  std::memcpy(text, &question.mac, sizeof question.mac);
  std::memcpy(text + sizeof question.mac, &answer, offsetof(Answer, mac));
  return keyed_hash64(key, text);
}

void answer_one(int socket, const Key& key, const Hello& hello, Responder& responder) {
  const Welcome welcome{kMagic, kWireVersion, welcome_mac(key, hello)};
  send_all(socket, &welcome, sizeof welcome);
  Question question;
  receive_all(socket, &question, sizeof question, in_ms(kQuestionMs), "a question");
  if (question.magic != kMagic || question.slot != hello.source ||
      question.mac != question_mac(key, hello, question))
    return;
  std::shared_ptr<const void> owner;
  std::span<const std::byte> payload;
  Answer answer = responder.answer(question, &owner, &payload);
  answer.bytes = payload.size();
  answer.mac = answer_mac(key, question, answer);
  send_all(socket, &answer, sizeof answer);
  send_all(socket, payload.data(), payload.size());
}

void try_answer(int socket, const Key& key, const Hello& hello, Responder& responder) {
  try {
    answer_one(socket, key, hello, responder);
  } catch (const Error&) {
    // The asking rank is gone, or asks again.
  }
}

// Only a look: the question is read, and its mac checked, by whoever answers.
bool is_there_and_short(int socket) {
  Question question;
  const auto got = recv(socket, &question, sizeof question, MSG_PEEK | MSG_DONTWAIT);
  return got == sizeof question &&
         (question.verb == Verb::kStatus || question.verb == Verb::kAddress);
}

Answer checked(const Answer& answer, std::span<std::byte> to) {
  if (answer.bytes && answer.bytes != to.size())
    fail(ncclRemoteError, "it offers [", answer.bytes, "] bytes instead of [", to.size(), "]");
  return answer;
}

Answer ask_here(const Asked& whom, const Question& question, std::span<std::byte> to) {
  const auto inbox = Endpoint::process().find({whom.comm, 0, whom.slot});
  if (!inbox || !inbox->responder()) fail(ncclRemoteError, "its communicator is gone");
  std::shared_ptr<const void> owner;
  std::span<const std::byte> payload;
  Answer answer = inbox->responder()->answer(question, &owner, &payload);
  answer.bytes = payload.size();
  checked(answer, to);
  if (!payload.empty()) std::memcpy(to.data(), payload.data(), payload.size());
  return answer;
}

}  // namespace

bool answer(Fd socket, const Key& key, const Hello& hello, std::shared_ptr<Responder> responder) {
  if (is_there_and_short(socket.get()))
    return try_answer(socket.get(), key, hello, *responder), true;
  if (threads.fetch_add(1) >= kMaxThreads) return threads.fetch_sub(1), false;
  std::thread([socket = std::move(socket), key, hello, responder = std::move(responder)] {
    try_answer(socket.get(), key, hello, *responder);
    threads.fetch_sub(1);
  }).detach();
  return true;
}

Answer ask(const Asked& whom, Question question, std::span<std::byte> to) {
  const Address& own = Endpoint::process().address();
  auto transport = whom.transport;
  if (transport == flexcclAuto)
    transport = whom.address.process == own.process ? flexcclLoopback
                : whom.address.host == own.host     ? flexcclShm
                                                    : flexcclTcp;
  if (transport == flexcclLoopback) return ask_here(whom, question, to);
  const Fd socket = transport == flexcclShm
                        ? connect_unix(whom.address.process)
                        : connect_tcp(whom.address.ipv4, whom.address.port, whom.deadline);
  const Hello hello = hello_for(socket.get(),
                                {.inbox = {whom.comm, question.epoch, whom.slot},
                                 .source = question.slot,
                                 .transport = transport,
                                 .key = whom.key,
                                 .deadline = whom.deadline},
                                LinkKind::kControl);
  question.mac = question_mac(whom.key, hello, question);
  // Both in one message: the question is no secret, and the answer comes a round trip sooner.
  std::byte both[sizeof hello + sizeof question];
  std::memcpy(both, &hello, sizeof hello);
  std::memcpy(both + sizeof hello, &question, sizeof question);
  send_all(socket.get(), both, sizeof both);
  Welcome welcome;
  receive_all(socket.get(), &welcome, sizeof welcome, whom.deadline, "its welcome");
  if (!equal_macs(welcome.mac, welcome_mac(whom.key, hello)))
    fail(ncclRemoteError, "its welcome is not signed with the key of the job");
  Answer answer;
  receive_all(socket.get(), &answer, sizeof answer, whom.deadline, "its answer");
  if (answer.mac != answer_mac(whom.key, question, answer))
    fail(ncclRemoteError, "its answer is not signed with the key of the job");
  checked(answer, to);
  receive_all(socket.get(), to.data(), answer.bytes, whom.deadline, "what it keeps");
  return answer;
}

}  // namespace flexccl
