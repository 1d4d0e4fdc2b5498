// Neighbours of one rank that are the test: they answer, hear and are visited as it says, and see
// what the rank does in one way while its other ways are switched off.
#ifndef PYFT_TESTS_FLEXCCL_NEIGHBOUR_H_
#define PYFT_TESTS_FLEXCCL_NEIGHBOUR_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "comes.h"
#include "members.h"
#include "runner/operation_runner.h"
#include "transport/endpoint.h"
#include "transport/join.h"

namespace members {

inline Key job_key() {
  Key key;
  key.bytes.fill(4);
  return key;
}

// Of a rank in this process whose other ranks are there, too.
inline Membership membership(int slot, int ranks, std::vector<Change> changes) {
  static std::uint64_t comm = 3000;
  Membership self = member(slot, ranks, 0);
  self.comm = ++comm, self.key = job_key(), self.transport = flexcclLoopback;
  self.addresses =
      std::vector<Address>(static_cast<std::size_t>(ranks), Endpoint::process().address());
  self.timeout_ms = self.repair_ms = 20'000;
  self.epoch = changes.back().epoch, self.changes = std::move(changes);
  return self;
}

inline Change step_to(std::uint32_t epoch, int slot) {
  Change step{epoch, slot, Repair::kReplace, 0, Endpoint::process().address()};
  step.address.process[0] = static_cast<std::uint8_t>(epoch);
  return step;
}

class Neighbour : public Responder {
 public:
  Neighbour(const Membership& self, int slot)
      : name_{self.comm, self.epoch, static_cast<std::uint32_t>(slot)} {}
  Answer answer(const Question& question, std::shared_ptr<const void>* owner,
                std::span<const std::byte>* payload) override {
    if (question.verb == Verb::kStatus) return status(++asked);
    if (question.verb == Verb::kOutput) {
      const auto output = std::make_shared<std::vector<std::byte>>(kept(++fetched));
      const auto from = std::min<std::size_t>(question.offset, output->size());
      const auto wanted = std::min<std::size_t>(question.bytes, output->size() - from);
      *payload = std::span(*output).subspan(from, wanted), *owner = output;
    }
    if (question.verb != Verb::kSteps) return {};
    ++asked_for_steps;
    const auto all = std::make_shared<std::vector<Change>>(steps);
    all->resize(Info::kMaxChanges);
    *payload = std::as_bytes(std::span(*all)), *owner = all;
    return {};
  }
  void hear(std::span<const std::byte>) override {
    if (++heard <= deaf) fail(ncclRemoteError, "it does not listen");
  }
  void join(JoinVisit& call) override {
    ++visited;
    visit(call);
  }
  static std::shared_ptr<Neighbour> at(const Membership& self, int slot) {
    auto made = std::make_shared<Neighbour>(self, slot);
    made->inbox_ = std::make_shared<Inbox>(fingerprint(self.key), self.epoch, made);
    Endpoint::process().add(made->name_, made->inbox_);
    return made;
  }
  void leave() {
    Endpoint::process().remove(name_, inbox_);
    inbox_.reset();
  }
  Inbox& inbox() { return *inbox_; }
  int slot() const { return static_cast<int>(name_.destination); }

  std::function<Answer(int times)> status = [](int) { return Answer(); };
  std::function<void(JoinVisit&)> visit = [](JoinVisit&) {};
  std::function<std::vector<std::byte>(int times)> kept = [](int) {
    return std::vector<std::byte>();
  };
  std::vector<Change> steps;
  std::atomic<int> asked = 0, asked_for_steps = 0, heard = 0, deaf = 0, visited = 0, fetched = 0;

 private:
  InboxName name_;
  std::shared_ptr<Inbox> inbox_;
};

// Sends something to rank 1 or receives it, until that is done or it is aborted.
class Messaging {
 public:
  Messaging(OperationRunner& runner, bool sends, std::size_t count = 1)
      : runner_(runner), values_(count), thread_([this, sends] {
          auto* bytes = reinterpret_cast<std::byte*>(values_.data());
          PointToPoint call{.sends = sends, .peer = 1, .buffers = {bytes, bytes}};
          call.op.dtype = ncclFloat32, call.op.count = values_.size();
          result_ = result_of([&] { runner_.run({call}); });
          is_done = result_ == ncclSuccess;
        }) {}
  ~Messaging() {
    const bool was_done = is_done;
    if (!was_done) runner_.abort();
    thread_.join();
    CHECK_EQ(result_, was_done ? ncclSuccess : ncclInvalidUsage);  // aborted
  }
  std::atomic<bool> is_done = false;

 private:
  OperationRunner& runner_;
  std::vector<float> values_;
  ncclResult_t result_ = ncclSuccess;
  std::thread thread_;
};

struct Receiving : Messaging {
  explicit Receiving(OperationRunner& runner) : Messaging(runner, false) {}
};
struct Sending : Messaging {
  explicit Sending(OperationRunner& runner, std::size_t count = 1)
      : Messaging(runner, true, count) {}
};

// Changes the epoch from another thread, which may have to wait.
struct Changing {
  Changing(OperationRunner& runner, const Change& step)
      : thread([this, &runner, step] {
          runner.change({step});
          is_done = true;
        }) {}
  ~Changing() { thread.join(); }
  std::atomic<bool> is_done = false;
  std::thread thread;
};

// As another rank of the job tells it.
inline void tell_of(const Membership& self, const std::vector<Change>& steps) {
  Membership teller = self;
  teller.slot = self.slot_at(self.ring().wrap(self.ring().rank + 1));
  teller.changes = steps, teller.epoch = steps.back().epoch;
  tell(teller, self.slot, self.address(self.slot));
}

inline Answer status_in(std::uint32_t epoch, Availability availability) {
  return {.availability = availability, .epoch = epoch};
}

}  // namespace members

#endif  // PYFT_TESTS_FLEXCCL_NEIGHBOUR_H_
