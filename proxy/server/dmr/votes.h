// Third executions: a replay says which of two that differed before was wrong.
#ifndef PYFT_SERVER_DMR_VOTES_H_
#define PYFT_SERVER_DMR_VOTES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "api/wire/messages.h"
#include "ring/store_layout.h"

namespace pyft::server::dmr {

using ring::Digest;

// Two executions with the same inputs and other results, by their entries: one entry if the server
// has executed it for the second time.
struct Dispute {
  uint64_t first = 0, second = 0;
  uint64_t last = 0;  // the program has been told nothing of entries behind this one
  Digest inputs{}, first_outputs{}, second_outputs{};
};

// As PYFT_DMR_DISPUTES has them; nothing if the text is damaged.
std::optional<std::vector<Dispute>> read_disputes(std::string_view text);

// Any thread.
class Votes {
 public:
  explicit Votes(std::vector<Dispute> disputes);

  // Of one dispute.
  struct Said {
    const Dispute* dispute = nullptr;
    bool was_wrong = false;                     // its first execution: what followed may be wrong
    std::optional<ring::msg::Culprit> culprit;  // both are executed again, and agree
  };
  // An execution by entry `seq`; streams may execute the two in either order. Each dispute is
  // decided once. Of several about the same entries the last one is: there is one result for all.
  // `again`: by the server, for the second time.
  std::vector<Said> add(uint64_t seq, const Digest& inputs, const Digest& outputs,
                        bool again = false);
  // Whether a vote is open about a second execution of this entry by the server.
  bool wants_again(uint64_t seq);

 private:
  struct Open {
    Dispute dispute;
    bool is_last = true;                         // of these entries
    std::array<bool, 2> executed{};              // again, the first and the second
    std::array<std::optional<Digest>, 2> again;  // what they give now, with the same inputs
  };
  static Said say(Open* open, size_t which, const Digest& inputs, const Digest& outputs);
  static std::optional<ring::msg::Culprit> culprit(const Open& open);

  std::mutex mutex_;
  std::vector<Open> open_;  // its elements stay where they are
};

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_VOTES_H_
