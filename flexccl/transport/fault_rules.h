// The rules of fault.h as data, and which of them applies to a frame.
#ifndef FLEXCCL_TRANSPORT_FAULT_RULES_H_
#define FLEXCCL_TRANSPORT_FAULT_RULES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/fault.h"

namespace flexccl {

// Where a rule acts; the last four are no frames.
enum class FaultPlace { kSend, kReceive, kRepair, kInit, kSplit, kAnswer };
enum class FaultAction { kKill, kCut, kDrop, kDelay, kCorrupt, kTruncate };

struct FaultRule {
  FaultAction action = FaultAction::kKill;
  std::optional<std::uint64_t> rank, peer;
  std::uint64_t frame = 1, bytes = 0, ms = 0;
  FaultPlace on = FaultPlace::kSend;
  std::string text;  // as written
};

// Throws ncclInvalidArgument.
std::vector<FaultRule> parse_fault_rules(const std::string& text);

bool faults_are_set();
// Counts one more frame of the link and returns the rule that applies to it.
std::optional<FaultRule> next_fault(const LinkName& link, bool on_receive);
// The same for what is no frame; such rules end the rank.
std::optional<FaultRule> next_fault_at(FaultPlace place, const LinkName& link);
// It has acted: a line in the file of FLEXCCL_FAULT_NOTES, which outlives this process.
void note_down(const FaultRule& rule);
// A rank that was cut stays dead in this epoch, on all its links.
void cut(const LinkName& link);
bool is_cut(const LinkName& link);

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_FAULT_RULES_H_
