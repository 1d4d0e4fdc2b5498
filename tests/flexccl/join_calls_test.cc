// The conversation by which a new rank gets its place, without ranks: what passes over each
// transport, and what is said by one that does not have the key.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "base/error.h"
#include "check.h"
#include "comes.h"
#include "transport/endpoint.h"
#include "transport/fault.h"
#include "transport/join.h"

namespace {

using namespace flexccl;

constexpr flexcclTransport_t kAll[] = {flexcclLoopback, flexcclShm, flexcclTcp};
constexpr std::uint32_t kNew = 2, kHere = 5, kEpoch = 4;
constexpr std::uint64_t kDecision = 1, kReceipt = 2;

Key job_key() {
  Key key;
  key.bytes.fill(9);
  return key;
}

const std::vector<std::byte>& words() {
  static const std::vector<std::byte> all(48, std::byte{7});
  return all;
}

std::uint64_t token(const Question& question, std::uint64_t which) {
  const std::uint64_t text[] = {question.mac, which};
  return keyed_hash64(job_key(), std::as_bytes(std::span(text)));
}

ncclResult_t result_of(const std::function<void()>& call) {
  try {
    call();
    return ncclSuccess;
  } catch (const Error& error) {
    return error.code;
  }
}

// A rank of this process that is visited.
class Neighbour : public Responder {
 public:
  explicit Neighbour(std::function<void(JoinVisit&)> visit) : visit_(std::move(visit)) {}
  Answer answer(const Question&, std::shared_ptr<const void>*,
                std::span<const std::byte>*) override {
    return {};
  }
  void join(JoinVisit& visit) override {
    try {
      visit_(visit);
    } catch (const Error& error) {
      failed = error.code;
    }
    ended = true;
  }
  std::atomic<ncclResult_t> failed = ncclSuccess;
  std::atomic<bool> ended = false;

 private:
  std::function<void(JoinVisit&)> visit_;
};

// A communicator of its own for each.
struct Meeting {
  Meeting(flexcclTransport_t transport, std::function<void(JoinVisit&)> visit)
      : neighbour(std::make_shared<Neighbour>(std::move(visit))),
        inbox(std::make_shared<Inbox>(fingerprint(job_key()), kEpoch, neighbour)) {
    static std::uint64_t last = 900;
    Endpoint& here = Endpoint::process();
    here.learn_key(job_key());
    asked = {here.address(), ++last, kHere, transport, job_key(), in_ms(20'000)};
    here.add(name(), inbox);
  }
  ~Meeting() { Endpoint::process().remove(name(), inbox); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  InboxName name() const { return {asked.comm, kEpoch, kHere}; }

  std::shared_ptr<Neighbour> neighbour;
  std::shared_ptr<Inbox> inbox;
  Asked asked;
};

void hear(JoinVisit& visit) {
  visit.answer({.epoch = kEpoch}, -1);
  while (!visit.comes_decision())
    if (visit.gone()) return;
  visit.give_receipt();
}

// All that the new rank does; returns how many of its steps it had done when one failed.
int talk(const Asked& asked, Fd* log = nullptr) {
  Fd unused;
  JoinCall call(asked, kNew, kEpoch);
  int done = 0;
  const std::function<void()> parts[] = {
      [&] { call.speak(words()), call.wait_for_welcome(); },
      [&] { CHECK_EQ(call.wait_for_answer(asked.deadline, log ? log : &unused).epoch, kEpoch); },
      [&] { call.decide(); }, [&] { call.wait_for_receipt(asked.deadline); }};
  for (const auto& part : parts) {
    if (const ncclResult_t code = result_of(part); code != ncclSuccess) {
      CHECK(code == ncclRemoteError || code == ncclSystemError);  // its own end was cut off
      break;
    }
    ++done;
  }
  return done;
}

std::pair<Fd, Fd> pair_of_sockets() {
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// The neighbour's side over a pair of sockets, of which the test has the other end.
struct Visited {
  Visited()
      : ends(pair_of_sockets()), visit(ends.first.get(), job_key(), {1, kHere}, question, {}) {}
  void say(std::uint64_t word) const { send_all(ends.second.get(), &word, sizeof word); }

  Question question{.mac = 33};
  std::pair<Fd, Fd> ends;
  JoinVisit visit;
};

}  // namespace

TEST(a_conversation_over_each_transport) {
  const Fd file(memfd_create("a membership log", MFD_CLOEXEC));
  for (const auto transport : kAll)
    for (const int log : {-1, 0, file.get()}) {
      std::atomic<bool> early = false;
      Meeting meeting(transport, [&](JoinVisit& visit) {
        CHECK(std::ranges::equal(visit.step(), words()));
        CHECK(!visit.comes_decision());  // the new one waits for the answer
        CHECK(!visit.gone());
        visit.answer({.epoch = kEpoch}, log);
        while (!visit.comes_decision()) early = visit.gone();
        visit.give_receipt();
      });
      Fd there;
      CHECK_EQ(talk(meeting.asked, &there), 4);
      CHECK(comes([&] { return meeting.neighbour->ended.load(); }));
      CHECK_EQ(meeting.neighbour->failed.load(), ncclSuccess);
      CHECK(!early);
      CHECK_EQ(bool(there), log >= 0 && transport != flexcclTcp);
      struct stat sent{}, come{};
      if (there) CHECK_EQ(fstat(log, &sent) + fstat(there.get(), &come), 0);
      CHECK_EQ(sent.st_ino, come.st_ino);
    }
}

TEST(a_call_knows_whom_it_calls) {
  const Meeting meeting(flexcclLoopback, hear);
  CHECK_EQ(JoinCall(meeting.asked, kNew, kEpoch).slot(), int(kHere));
}

// Each message may be the last one of either side.
TEST(either_side_may_end_at_each_message) {
  for (const auto transport : kAll) {
    for (int message = 1; message <= 4; ++message) {
      set_faults(("cut,on=repair,rank=2,frame=" + std::to_string(message)).c_str());
      const Meeting meeting(transport, hear);
      CHECK_EQ(talk(meeting.asked), message - 1);
    }
    for (int message = 1; message <= 3; ++message) {
      set_faults(("cut,on=repair,rank=5,frame=" + std::to_string(message)).c_str());
      const Meeting meeting(transport, hear);
      CHECK_EQ(talk(meeting.asked), message == 1 ? 1 : 3);
      CHECK(comes([&] { return meeting.neighbour->ended.load(); }));
      CHECK_EQ(meeting.neighbour->failed.load(), ncclSystemError);
    }
  }
  set_faults(nullptr);
}

TEST(a_communicator_that_is_gone_is_not_visited) {
  Asked asked;
  {
    const Meeting meeting(flexcclLoopback, hear);
    asked = meeting.asked;
  }
  CHECK_EQ(talk(asked), 0);
  Endpoint& here = Endpoint::process();
  const auto inbox = std::make_shared<Inbox>(fingerprint(job_key()), kEpoch);
  asked.comm = 800;  // its rank has not begun to answer
  here.add({asked.comm, kEpoch, kHere}, inbox);
  CHECK_EQ(talk(asked), 0);
  here.remove({asked.comm, kEpoch, kHere}, inbox);
}

TEST(without_descriptors_it_says_so) {
  const Meeting meeting(flexcclLoopback, hear);
  JoinCall call(meeting.asked, kNew, kEpoch);
  rlimit before{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const ncclResult_t result = result_of([&] { call.speak(words()); });
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  CHECK_EQ(result, ncclSystemError);
}

namespace {

// One that listens at the address of the neighbour, and does not have the key in this word of its
// three: 1 to 3. It may be left before it has said all.
void answer_without_key(const Fd& listener, int wrong) {
  pollfd look{listener.get(), POLLIN, 0};
  poll(&look, 1, 20'000);
  const Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const Challenge challenge{kMagic, kWireVersion, {}};
  send_all(socket.get(), &challenge, sizeof challenge);
  Hello hello;
  Question question;
  receive_all(socket.get(), &hello, sizeof hello, in_ms(20'000), "hello");
  receive_all(socket.get(), &question, sizeof question, in_ms(20'000), "question");
  CHECK_EQ(question.slot, kNew);
  CHECK_EQ(question.epoch, kEpoch);
  CHECK_EQ(hello.source, kNew);
  CHECK_EQ(hello.destination, kHere);
  CHECK_EQ(hello.epoch, kEpoch);
  Welcome welcome{kMagic, kWireVersion, welcome_mac(job_key(), hello)};
  welcome.mac[0] ^= wrong == 1;
  Answer answer{.epoch = kEpoch};
  answer.mac = answer_mac(job_key(), question, answer) ^ (wrong == 2);
  const std::uint64_t receipt = token(question, kReceipt) ^ (wrong == 3);
  send_all(socket.get(), &welcome, sizeof welcome);
  send_all(socket.get(), &answer, sizeof answer);
  send_all(socket.get(), &receipt, sizeof receipt);
  std::byte rest[128];
  while (recv(socket.get(), rest, sizeof rest, 0) > 0) {
  }
}

}  // namespace

TEST(a_new_rank_believes_only_what_is_signed) {
  constexpr int kDone[] = {0, 1, 3, 4};  // the last one: all is signed
  for (int wrong = 1; wrong <= 4; ++wrong) {
    std::uint16_t port = 0;
    const std::uint32_t own = htonl(INADDR_LOOPBACK);
    const Fd listener = listen_tcp(own, &port);
    const std::jthread stranger([&] { result_of([&] { answer_without_key(listener, wrong); }); });
    Asked asked{{}, 700, kHere, flexcclTcp, job_key(), in_ms(20'000)};
    asked.address.ipv4 = own;
    asked.address.port = port;
    CHECK_EQ(talk(asked), kDone[wrong - 1]);
  }
}

TEST(a_neighbour_believes_only_a_decision_that_is_signed) {
  {
    Visited right;
    CHECK(!right.visit.comes_decision());
    right.say(token(right.question, kDecision));
    CHECK(right.visit.comes_decision());
    right.visit.give_receipt();
    std::uint64_t got = 0;
    receive_all(right.ends.second.get(), &got, sizeof got, in_ms(20'000), "receipt");
    CHECK_EQ(got, token(right.question, kReceipt));
  }
  for (const std::uint64_t add : {std::uint64_t{1}, token(Question{.mac = 33}, kReceipt)}) {
    Visited wrong;
    wrong.say(token(wrong.question, kDecision) ^ add);
    CHECK_EQ(result_of([&] { wrong.visit.comes_decision(); }), ncclRemoteError);
  }
}

TEST(a_neighbour_sees_that_the_new_rank_has_ended) {
  Visited here;
  CHECK(!here.visit.gone());
  here.ends.second = Fd();
  CHECK(here.visit.gone());
  CHECK_EQ(result_of([&] { here.visit.comes_decision(); }), ncclRemoteError);
}

CHECK_MAIN
