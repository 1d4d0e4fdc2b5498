#include "transport/control.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "transport/endpoint.h"
#include "transport/join.h"

namespace flexccl {
namespace {

constexpr std::uint64_t kQuestionMs = 5000;  // a caller has this long to say what it wants
constexpr int kMaxThreads = 256;
constexpr std::uint64_t kMaxTold = 4096;
std::atomic<int> threads = 0;

// What follows a question that tells something. Throws ncclRemoteError.
std::vector<std::byte> receive_told(int socket, const Key& key, const Question& question) {
  if (question.verb != Verb::kTell && question.verb != Verb::kJoin) return {};
  if (question.bytes > kMaxTold) fail(ncclRemoteError, "it tells [", question.bytes, "] bytes");
  std::vector<std::byte> told(question.bytes);
  receive_all(socket, told.data(), told.size(), in_ms(kQuestionMs), "what it tells");
  if (question.offset != keyed_hash64(key, told))
    fail(ncclRemoteError, "what it tells is not signed with the key of the job");
  return told;
}

void answer_one(int socket, const Key& key, const Hello& hello, Responder& responder) {
  const Welcome welcome{kMagic, kWireVersion, welcome_mac(key, hello)};
  send_all(socket, &welcome, sizeof welcome);
  Question question;
  receive_all(socket, &question, sizeof question, in_ms(kQuestionMs), "a question");
  if (question.magic != kMagic || question.slot != hello.source ||
      question.mac != question_mac(key, hello, question))
    return;
  const std::vector<std::byte> told = receive_told(socket, key, question);
  if (question.verb == Verb::kJoin) {
    JoinVisit visit(socket, key, {hello.comm, hello.destination}, question, told);
    return responder.join(visit);
  }
  if (question.verb == Verb::kTell) responder.hear(told);
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

// Only a look: the question is read, and its mac checked, by the thread that answers.
bool is_there_and_short(int socket) {
  Question question;
  const auto got = recv(socket, &question, sizeof question, MSG_PEEK | MSG_DONTWAIT);
  return got == sizeof question &&
         (question.verb == Verb::kStatus || question.verb == Verb::kAddress ||
          question.verb == Verb::kSteps);
}

Answer checked(const Answer& answer, std::span<std::byte> to) {
  if (answer.bytes && answer.bytes != to.size())
    fail(ncclRemoteError, "it offers [", answer.bytes, "] bytes instead of [", to.size(), "]");
  return answer;
}

Answer ask_here(const Asked& asked, const Question& question, std::span<std::byte> to,
                std::span<const std::byte> told) {
  const auto inbox = Endpoint::process().find({asked.comm, 0, asked.slot});
  if (!inbox || !inbox->responder()) fail(ncclRemoteError, "its communicator is gone");
  std::shared_ptr<const void> owner;
  std::span<const std::byte> payload;
  if (question.verb == Verb::kTell) inbox->responder()->hear(told);
  Answer answer = inbox->responder()->answer(question, &owner, &payload);
  answer.bytes = payload.size();
  checked(answer, to);
  if (!payload.empty()) std::memcpy(to.data(), payload.data(), payload.size());
  return answer;
}

}  // namespace

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

void sign(Question* question, const Key& key, const Hello& hello, std::span<const std::byte> told) {
  if (!told.empty()) question->bytes = told.size(), question->offset = keyed_hash64(key, told);
  question->mac = question_mac(key, hello, *question);
}

flexcclTransport_t transport_to(const Asked& asked) {
  if (asked.transport != flexcclAuto) return asked.transport;
  const Address& own = Endpoint::process().address();
  return asked.address.process == own.process ? flexcclLoopback
         : asked.address.host == own.host     ? flexcclShm
                                              : flexcclTcp;
}

void send_question(int socket, const Hello& hello, const Question& question,
                   std::span<const std::byte> told) {
  // All in one message: the question is no secret, and the answer comes a round trip sooner.
  std::byte all[sizeof hello + sizeof question + kMaxTold];
  std::memcpy(all, &hello, sizeof hello);
  std::memcpy(all + sizeof hello, &question, sizeof question);
  std::copy(told.begin(), told.end(), all + sizeof hello + sizeof question);
  send_all(socket, all, sizeof hello + sizeof question + told.size());
}

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

Answer ask(const Asked& asked, Question question, std::span<std::byte> to,
           std::span<const std::byte> told) {
  const auto transport = transport_to(asked);
  if (transport == flexcclLoopback) return ask_here(asked, question, to, told);
  const Fd socket = transport == flexcclShm
                        ? connect_unix(asked.address.process, asked.deadline)
                        : connect_tcp(asked.address.ipv4, asked.address.port, asked.deadline);
  const Hello hello = hello_for(socket.get(),
                                {.inbox = {asked.comm, question.epoch, asked.slot},
                                 .source = question.slot,
                                 .transport = transport,
                                 .key = asked.key,
                                 .deadline = asked.deadline},
                                LinkKind::kControl);
  sign(&question, asked.key, hello, told);
  send_question(socket.get(), hello, question, told);
  Welcome welcome;
  receive_all(socket.get(), &welcome, sizeof welcome, asked.deadline, "its welcome");
  if (!equal_macs(welcome.mac, welcome_mac(asked.key, hello)))
    fail(ncclRemoteError, "its welcome is not signed with the key of the job");
  Answer answer;
  receive_all(socket.get(), &answer, sizeof answer, asked.deadline, "its answer");
  if (answer.mac != answer_mac(asked.key, question, answer))
    fail(ncclRemoteError, "its answer is not signed with the key of the job");
  checked(answer, to);
  receive_all(socket.get(), to.data(), answer.bytes, asked.deadline, "what it keeps");
  return answer;
}

}  // namespace flexccl
