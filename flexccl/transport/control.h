// One question of a rank to another one and its answer, beside all links: what a repair needs to
// know or to fetch. The asked rank's thread is not needed; a thread of the endpoint answers.
#ifndef FLEXCCL_TRANSPORT_CONTROL_H_
#define FLEXCCL_TRANSPORT_CONTROL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/key.h"
#include "flexccl.h"
#include "transport/address.h"
#include "transport/memory.h"
#include "transport/socket.h"

namespace flexccl {

enum class Verb : std::uint32_t {
  kStatus = 1,   // how far is it?
  kOutput = 2,   // bytes of the result of a collective
  kInput = 3,    // bytes of its own contribution to one, premultiplied if the operation says so
  kMessage = 4,  // the message `sequence` that it sent to the asking rank
  kAddress = 5,  // where is slot `offset`?
  kSteps = 6,    // what has been decided since the asking rank's epoch?
  kTell = 7,     // no question: steps that are decided follow
  kJoin = 8,     // the step that puts the asking rank into its slot follows (join.h)
};

struct Question {
  std::uint32_t magic = kMagic;
  Verb verb = Verb::kStatus;
  std::uint32_t slot = 0, epoch = 0;  // of the asking rank
  // kTell, kJoin: `bytes` follow, `offset` is their mac. kStatus with kForGood: what the asking
  // rank has completed (`sequence`), and received from the asked one (`bytes`).
  std::uint64_t sequence = 0, offset = 0, bytes = 0;
  std::uint64_t mac = 0;  // over the hello's mac and everything above
};
static_assert(sizeof(Question) == 48);

enum class Availability : std::uint32_t {
  kHere = 0,
  kNotYet = 1,  // another epoch, or the operation was not begun here: ask again
  kGone = 2,    // not kept here (any longer)
};

// The counters of messages are those between the two ranks. "At the fence": when it took its epoch.
struct Answer {
  std::uint32_t magic = kMagic;
  Availability availability = Availability::kHere;
  std::uint32_t epoch = 0, ranks = 0;  // `ranks`: of the operation that is kept
  std::uint64_t done = 0, done_at_fence = 0, serves_after = 0;
  std::uint64_t sent_at_fence = 0, sent = 0, received = 0;
  Address address = {};           // of kAddress
  std::uint64_t bytes = 0;        // that follow
  std::uint64_t sent_before = 0;  // when the asking rank took its slot
  std::uint64_t mac = 0;          // over the question's mac and everything above
};
static_assert(sizeof(Answer) == 120);

class JoinVisit;

// All from any thread.
class Responder {
 public:
  virtual ~Responder() = default;
  // `payload` stays valid as long as `owner` does.
  virtual Answer answer(const Question& question, std::shared_ptr<const void>* owner,
                        std::span<const std::byte>* payload) = 0;
  // What followed a kTell.
  virtual void hear(std::span<const std::byte>) {}
  // Takes as long as the conversation.
  virtual void join(JoinVisit&) {}
  // Another rank is in a later epoch than this one: is there anything new?
  virtual void look() {}
};

// Which rank is asked, and how it is reached.
struct Asked {
  Address address;
  std::uint64_t comm;
  std::uint32_t slot;
  flexcclTransport_t transport;
  Key key;
  Deadline deadline;
};
// `to` gets the bytes; an answer with another number of bytes is an error. `told` follows the
// question. Throws ncclRemoteError.
Answer ask(const Asked& asked, Question question, std::span<std::byte> to = {},
           std::span<const std::byte> told = {});
// flexcclAuto becomes what it means for that rank.
flexcclTransport_t transport_to(const Asked& asked);
// What a question and an answer are signed with.
std::uint64_t question_mac(const Key& key, const Hello& hello, const Question& question);
std::uint64_t answer_mac(const Key& key, const Question& question, const Answer& answer);
// Hello, question and what is told (at most 4096 bytes).
void send_question(int socket, const Hello& hello, const Question& question,
                   std::span<const std::byte> told);
// With `told`, of which the question says so much.
void sign(Question* question, const Key& key, const Hello& hello, std::span<const std::byte> told);

// Answers a question about counters at once when it has come, as it mostly has with its hello: a
// repair waits for nothing else. All others get a thread of their own. False: there are too many.
bool answer(Fd socket, const Key& key, const Hello& hello, std::shared_ptr<Responder> responder);

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_CONTROL_H_
