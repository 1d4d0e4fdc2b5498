// How a server gets the places of its predecessor in communicators, and its own place in one that
// the others have made while it, or its predecessor, was on the way to them; and what the servers
// of the other ranks do for that, below.
#include <algorithm>
#include <cstring>

#include "pyft/log.h"
#include "server/recovery/communicators.h"

namespace pyft::server {

namespace {

constexpr int kAgentAnswersMs = 60'000;  // docs/deadlines.md

// What flexcclMaking_t is told, and answers.
constexpr int kFirst = 0, kDivided = 2;
constexpr int kNotKnown = 0, kHasPlace = 1, kNobodyHasIt = 2;

RepairedCommunicators* asked = nullptr;  // by its backend, which keeps no object of ours

}  // namespace

void RepairedCommunicators::tell_when_making() {
  asked = this;
  repair_->set_making([](uint64_t key, int rank, int size, int lost) {
    return asked->on_the_way(key, rank, size, lost);
  });
}

// In the thread of ncclCommInitRank or ncclCommSplit, and so beside the dispatch thread.
int RepairedCommunicators::on_the_way(uint64_t key, int rank, int size, int lost) {
  if (lost == kFirst) {
    link_->send(msg::Making{.key = key, .rank = rank, .size = size});
    return recovery_.replaces();
  }
  const bool divided = lost == kDivided;
  const auto reason = divided ? msg::ExportReason::kDividing : msg::ExportReason::kLostMeeting;
  link_->send(msg::WantExport{.key = key, .rank = rank, .reason = reason});
  const auto exported = link_->wait<msg::Export>(key, 0);
  if (!exported) return kNotKnown;
  if (exported->answer != msg::ExportAnswer::kHaveIt) return divided ? kNobodyHasIt : kNotKnown;
  // It has done nothing yet, whatever the others have; its records come when it is made.
  const backend::RegionHead head{key, rank, size, 0, false};
  const std::string problem = take_place(head, {}, 0, exported->payload);
  if (!problem.empty()) recovery_.no_place(problem);
  return kHasPlace;
}

std::string RepairedCommunicators::rejoin() {
  if (!active()) return {};
  const uint64_t cut = table_.committed().cut;
  for (ring::StoredCommunicator& entry : table_.all())
    if (entry.handle)
      if (std::string problem = rejoin_one(entry, cut); !problem.empty()) return problem;
  return {};
}

std::string RepairedCommunicators::rejoin_one(ring::StoredCommunicator& entry, uint64_t cut) {
  const std::span<std::byte> records = table_.records(entry);
  const uint64_t operation = table_.line(entry, cut);
  backend::RegionHead head;
  const bool recorded = repair_->head(records.data(), &head);
  if (!recorded) head = {entry.key, entry.rank, entry.size, 0, false};
  if (!recorded && entry.size == 1) return table_.drop(entry), std::string();
  if (head.closed || entry.size == 1) return adopt(entry, operation);
  link_->send(msg::WantExport{
      .key = entry.key, .rank = entry.rank, .reason = msg::ExportReason::kFromRecords});
  const auto exported = link_->wait<msg::Export>(entry.key, kAgentAnswersMs);
  if (!exported)
    recovery_.no_place("the agent does not say which other rank has " + named(entry.key));
  // Otherwise all others have ended it, or are dead as well and will ask here.
  const bool have_it = exported->answer == msg::ExportAnswer::kHaveIt;
  PYFT_LOG(kRecovery, kDebug, "%s: joins as rank [%d], %s", named(entry.key).c_str(),
           static_cast<int>(entry.rank),
           have_it ? "which others let it" : "from its own records alone");
  // The server died before the program could use it: the replay makes it.
  if (!have_it && !recorded) return table_.drop(entry), std::string();
  const std::string problem =
      have_it ? take_place(head, records, operation, exported->payload) : adopt(entry, operation);
  if (!problem.empty()) return problem;
  link_->send(msg::Made{.key = entry.key, .rank = entry.rank, .size = entry.size});
  return {};
}

std::string RepairedCommunicators::adopt(const ring::StoredCommunicator& entry,
                                         uint64_t operation) {
  void* comm = nullptr;
  const std::span<std::byte> records = table_.records(entry);
  if (repair_->adopt(&comm, records.data(), records.size(), operation) == 0) return {};
  return named(entry.key) + " cannot be made from its records: " + repair_->last_error();
}

std::string RepairedCommunicators::take_place(const backend::RegionHead& head,
                                              std::span<std::byte> records, uint64_t operation,
                                              const std::vector<std::byte>& exported) {
  const auto refused = [&](const char* what) {
    recovery_.no_place(named(head.key) + ": " + what + ": " + repair_->last_error());
  };
  void* comm = nullptr;
  backend::InfoBytes fresh;
  if (repair_->init_new(&comm, exported, head.slot, &fresh)) refused("the new rank is refused");
  if (repair_->replay(comm, records.data(), records.size(), operation))
    return named(head.key) + ": the records cannot be replayed: " + repair_->last_error();
  link_->send(msg::Fresh{.key = head.key, .rank = head.slot}, fresh);
  const auto join = link_->wait<msg::Join>(head.key, kAgentAnswersMs);
  if (!join) recovery_.no_place("the members of " + named(head.key) + " do not take the new rank");
  if (repair_->setup(comm)) refused("the new rank does not get its place");
  return {};
}

void* RepairedCommunicators::made_before(uint64_t handle, uint64_t seq) {
  if (!active() || !recovery_.replaces()) return nullptr;
  void* comm = nullptr;
  for (const ring::StoredCommunicator& entry : table_.all())
    if (entry.handle == handle && entry.seq == seq) repair_->find(entry.key, &comm);
  return comm;
}

// ---- at the other ranks ----

// The answer is given anyway: the agent asks the next one.
void RepairedCommunicators::say_why(int code, uint64_t key, int rank) const {
  if (code)
    PYFT_LOG(kRecovery, kWarning, "device [%u]: %s: no part in the repair of rank [%d]: %s",
             channel_.device(), named(key).c_str(), rank, repair_->last_error());
}

bool RepairedCommunicators::order(const AgentMessage& message) {
  if (!active()) return false;
  if (const auto left = message.as<msg::Left>()) {
    repair_->left(left->key, left->rank);
    return true;
  }
  if (const auto asked = message.as<msg::DoExport>()) {
    backend::InfoBytes info;
    const int code = repair_->export_info(asked->key, asked->rank, &info);
    say_why(code, asked->key, asked->rank);
    link_->send(msg::Exported{.key = asked->key,
                              .rank = asked->rank,
                              .result = static_cast<uint32_t>(code),
                              .repair = static_cast<uint32_t>(asked->repair)},
                info);
    return true;
  }
  if (const auto asked = message.as<msg::DoReplace>()) {
    const int code = repair_->replace(asked->key, asked->rank, message.payload);
    say_why(code, asked->key, asked->rank);
    link_->send(msg::Replaced{.key = asked->key,
                              .rank = asked->rank,
                              .result = static_cast<uint32_t>(code),
                              .repair = static_cast<uint32_t>(asked->repair)});
    return true;
  }
  return false;
}

}  // namespace pyft::server
