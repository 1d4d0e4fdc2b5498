// How a server gets the places of its predecessor in communicators, and its own place in one that
// the others have made while it, or its predecessor, was on the way to them.
#include <algorithm>
#include <cstring>

#include "server/recovery/communicators.h"

namespace pyft::server {

namespace {

constexpr int kAgentAnswersMs = 60'000;  // docs/deadlines.md

// What flexcclMaking_t is told, and answers.
constexpr int kFirst = 0, kDivided = 2;
constexpr int kNotKnown = 0, kHasPlace = 1, kNobodyHasIt = 2;

std::function<int(uint64_t, int, int, int)> making;

}  // namespace

void LastingCommunicators::tell_when_making() {
  making = [this](uint64_t key, int rank, int size, int lost) {
    return this->on_the_way(key, rank, size, lost);
  };
  repair_->set_making(
      [](uint64_t key, int rank, int size, int lost) { return making(key, rank, size, lost); });
}

// In the thread of ncclCommInitRank or ncclCommSplit, and so beside the dispatch thread.
int LastingCommunicators::on_the_way(uint64_t key, int rank, int size, int lost) {
  const auto number = static_cast<uint64_t>(rank);
  if (lost == kFirst) {
    link_->send(ring::MessageKind::kMaking, key, number, static_cast<uint64_t>(size));
    return recovery_.replaces();
  }
  const bool divided = lost == kDivided;
  link_->send(ring::MessageKind::kWantExport, key, number,
              divided ? ring::kDividing : ring::kLostMeeting);
  const auto exported = link_->wait(ring::MessageKind::kExport, key, 0);
  if (!exported) return kNotKnown;
  if (exported->c) return divided ? kNobodyHasIt : kNotKnown;
  // It has done nothing yet, whatever the others have; its records come when it is made.
  const backend::RegionHead head{key, rank, size, 0, false};
  const std::string problem = take_place(head, {}, 0, *exported);
  if (!problem.empty()) recovery_.no_place(problem);
  return kHasPlace;
}

std::string LastingCommunicators::rejoin() {
  if (!active()) return {};
  uint64_t cut = 0;
  if (const uint32_t current = header_->current.load())
    std::memcpy(&cut, channel_.store() + header_->manifest_offset[current - 1], sizeof cut);
  for (uint32_t i = 0; i < ring::kMaxCommunicators; ++i)
    if (table()[i].handle)
      if (std::string problem = rejoin_one(table()[i], cut); !problem.empty()) return problem;
  return {};
}

std::string LastingCommunicators::rejoin_one(ring::StoredCommunicator& entry, uint64_t cut) {
  std::byte* const base = region(entry);
  const uint64_t operation = operation_at(entry, cut);
  backend::RegionHead head;
  const bool recorded = repair_->head(base, &head);
  if (!recorded) head = {entry.key, entry.rank, entry.size, 0, false};
  if (!recorded && entry.size == 1) return forget_unmade(entry);
  if (head.closed || entry.size == 1) return adopt(entry, operation);
  link_->send(ring::MessageKind::kWantExport, entry.key, static_cast<uint64_t>(entry.rank),
              ring::kFromRecords);
  const auto exported = link_->wait(ring::MessageKind::kExport, entry.key, kAgentAnswersMs);
  if (!exported) return "the agent does not say who else has " + named(entry.key);
  // Otherwise everybody else has ended it, or is dead as well and will ask here.
  if (exported->c && !recorded) return forget_unmade(entry);
  const std::string problem = exported->c == 0
                                  ? take_place(head, {base, region_bytes()}, operation, *exported)
                                  : adopt(entry, operation);
  if (!problem.empty()) return problem;
  link_->send(ring::MessageKind::kMade, entry.key, static_cast<uint64_t>(entry.rank),
              static_cast<uint64_t>(entry.size));
  return {};
}

// The server died before the program could use it, and nobody else has it: the replay makes it.
std::string LastingCommunicators::forget_unmade(ring::StoredCommunicator& entry) {
  std::atomic_ref(entry.handle).store(0, std::memory_order_release);
  return {};
}

std::string LastingCommunicators::adopt(const ring::StoredCommunicator& entry, uint64_t operation) {
  void* comm = nullptr;
  if (repair_->adopt(&comm, region(entry), region_bytes(), operation) == 0) return {};
  return named(entry.key) + " cannot be made from its records: " + repair_->last_error();
}

std::string LastingCommunicators::take_place(const backend::RegionHead& head,
                                             std::span<std::byte> records, uint64_t operation,
                                             const AgentMessage& exported) {
  const auto refused = [&](const char* what) {
    recovery_.no_place(named(head.key) + ": " + what + ": " + repair_->last_error());
  };
  void* comm = nullptr;
  backend::InfoBytes fresh;
  if (repair_->init_new(&comm, exported.payload, head.slot, &fresh))
    refused("the new rank is refused");
  if (repair_->replay(comm, records.data(), records.size(), operation))
    return named(head.key) + ": the records cannot be replayed: " + repair_->last_error();
  link_->send(ring::MessageKind::kFresh, head.key, static_cast<uint64_t>(head.slot), 0, fresh);
  const auto join = link_->wait(ring::MessageKind::kJoin, head.key, kAgentAnswersMs);
  if (!join) recovery_.no_place("the members of " + named(head.key) + " do not take the new rank");
  if (repair_->setup(comm)) refused("the new rank does not get its place");
  return {};
}

void* LastingCommunicators::made_before(uint64_t handle, uint64_t seq) {
  if (!active() || !recovery_.replaces()) return nullptr;
  void* comm = nullptr;
  for (uint32_t i = 0; i < ring::kMaxCommunicators; ++i)
    if (table()[i].handle == handle && table()[i].seq == seq) repair_->find(table()[i].key, &comm);
  return comm;
}

}  // namespace pyft::server
