// What the agents of a job do in these tests: ranks are processes, their records lie in memory that
// outlives them, and a rank that was killed is replaced as flexccl/README.md says. The parent
// process is all agents in one; it speaks to a thread in each rank through the board.
#ifndef PYFT_TESTS_FLEXCCL_AGENT_H_
#define PYFT_TESTS_FLEXCCL_AGENT_H_

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "crew.h"
#include "flexccl.h"

inline constexpr int kJobRanks = 4, kProgramRegions = 6, kRegions = 8;
inline constexpr std::size_t kRegionBytes = 512 << 10, kStoreBytes = 4 << 20;

enum class Ask { kEpoch, kExport, kReplace, kChildren };

// One question at a time from the agents to a rank.
struct Mailbox {
  std::atomic<int> state;  // 0: empty, 1: asked, 2: answered
  Ask ask;
  std::uint64_t number;
  int slot;
  bool ok, ended;
  std::uint32_t epoch;
  flexcclInfo_t info;
  flexcclChild_t children[kRegions];
  int count;
};

// How a new process gets a communicator back: `stage` goes up by turns.
struct Return {
  std::atomic<int> stage;  // 1: the agents know how, 2: it is there again, 3: the others know it
  bool joins, is_child;
  std::uint64_t operation;
  int slot;
  flexcclInfo_t exported, fresh;
};

struct JobBoard {
  alignas(64) std::byte regions[kJobRanks][kRegions][kRegionBytes];
  alignas(64) std::byte store[kStoreBytes];
  Mailbox mail[kJobRanks];
  std::atomic<bool> alive[kJobRanks];
  std::atomic<bool> has_cut[kJobRanks];  // set last: a rank may die while it writes the next two
  std::atomic<std::uint64_t> cut_operation[kJobRanks][kRegions];  // 1 + that of the cut; 0: none
  std::atomic<bool> cut_closed[kJobRanks][kRegions];
  Return back[kJobRanks][kRegions];
  std::atomic<bool> all_returned[kJobRanks];
  std::atomic<int> finished;
  ncclUniqueId ids[kRegions];
};

// 1 + the operation at which a replacement begins; 0: it repeats all of this communicator's.
inline std::uint64_t cut_of(const JobBoard& board, int rank, int index) {
  return board.has_cut[rank] ? board.cut_operation[rank][index].load() : 0;
}

// In a rank: answers until the job is over.
inline void answer_agents(JobBoard* board, int rank) {
  Mailbox& mail = board->mail[rank];
  while (board->finished < kJobRanks) {
    usleep(100);
    if (mail.state != 1) continue;
    ncclComm_t comm = nullptr;
    if (mail.ask == Ask::kReplace) {
      mail.ok = flexcclReplaceLater(mail.number, mail.slot, &mail.info) == ncclSuccess;
      if (!mail.ok) std::cerr << "rank " << rank << ": " << ncclGetLastError(nullptr) << "\n";
    } else {
      const ncclResult_t found = flexcclFind(mail.number, &comm);
      mail.ok = found == ncclSuccess, mail.ended = found == ncclInvalidUsage;
      if (mail.ok) mail.epoch = state_of(comm).epoch;
      if (mail.ok && mail.ask == Ask::kExport) {
        mail.ok = ncclCommExportInfo(comm, mail.slot, &mail.info) == ncclSuccess;
        if (!mail.ok) std::cerr << "rank " << rank << ": " << ncclGetLastError(nullptr) << "\n";
      }
      mail.count = kRegions;
      if (mail.ok && mail.ask == Ask::kChildren)
        mail.ok = flexcclChildren(comm, mail.slot, mail.children, &mail.count) == ncclSuccess;
    }
    mail.state = 2;
  }
}

inline bool ask(JobBoard* board, int rank, Ask what, std::uint64_t number, int slot) {
  Mailbox& mail = board->mail[rank];
  mail.ask = what, mail.number = number, mail.slot = slot;
  mail.state = 1;
  const bool answered = comes([&] { return mail.state == 2 || !board->alive[rank]; });
  CHECK(answered);
  mail.state = 0;
  return answered && mail.ok;
}

inline flexcclRegion_t region_of(JobBoard* board, int rank, int index) {
  flexcclRegion_t region;
  std::memcpy(&region, board->regions[rank][index], sizeof region);
  return region;
}

// The survivor that has this communicator and is in its highest epoch; -1: none has it. `ended`:
// one of them has had it.
inline int best_survivor(JobBoard* board, std::uint64_t number, bool* ended) {
  int best = -1;
  std::uint32_t highest = 0;
  for (int rank = 0; rank < kJobRanks; ++rank) {
    if (!board->alive[rank]) continue;
    const bool found = ask(board, rank, Ask::kEpoch, number, 0);
    *ended |= board->mail[rank].ended;
    if (found && (best < 0 || board->mail[rank].epoch > highest))
      best = rank, highest = board->mail[rank].epoch;
  }
  return best;
}

// That survivor exports. False: none has it any more. A survivor that is still making it is
// waited for, and one that has ended it between the two questions leaves it to the others.
inline bool export_from_survivor(JobBoard* board, std::uint64_t number, Return* back) {
  int best = -1;
  bool exported = false, ended = false;
  const bool known = comes([&] {
    best = best_survivor(board, number, &ended);
    if (best < 0) return ended;
    exported = ask(board, best, Ask::kExport, number, back->slot);
    CHECK(exported || board->mail[best].ended);
    return exported || !board->mail[best].ended;
  });
  CHECK(known);
  if (!exported) return false;
  back->exported = board->mail[best].info;
  return true;
}

// Hands one communicator to the new process and to the survivors. False: the new process died.
inline bool bring_back(JobBoard* board, int victim, int index, std::uint64_t number, int slot,
                       const std::function<bool()>& gone) {
  Return& back = board->back[victim][index];
  const std::uint64_t cut = cut_of(*board, victim, index);
  back.operation = cut ? cut - 1 : 0;
  back.slot = slot;
  const flexcclRegion_t region = region_of(board, victim, index);
  back.is_child = region.magic == 0 || region.parent != 0;
  back.joins = export_from_survivor(board, number, &back);
  back.stage = 1;
  CHECK(comes([&] { return back.stage == 2 || gone(); }));
  if (back.stage != 2) return false;
  for (int rank = 0; rank < kJobRanks; ++rank)
    if (back.joins && board->alive[rank]) {
      board->mail[rank].info = back.fresh;
      CHECK(ask(board, rank, Ask::kReplace, number, slot));
    }
  back.stage = 3;
  return true;
}

// A communicator that survivors have split or shrunk and of which the victim has no region.
inline bool find_child(JobBoard* board, int victim, flexcclChild_t* found) {
  const std::uint64_t world = region_of(board, victim, 0).comm;
  for (int rank = 0; world && rank < kJobRanks; ++rank) {
    if (!board->alive[rank] || !ask(board, rank, Ask::kChildren, world, victim)) continue;
    for (int i = 0; i < board->mail[rank].count; ++i) {
      *found = board->mail[rank].children[i];
      bool has_region = false;
      for (int j = 0; j < kRegions; ++j)
        has_region |= region_of(board, victim, j).comm == found->comm;
      if (!has_region) return true;
    }
  }
  return false;
}

// Everything of the victim's communicators that a new process needs. `gone`: that died as well.
inline void recover(JobBoard* board, int victim, const std::function<bool()>& gone) {
  for (int index = 0; index < kRegions; ++index) {
    const flexcclRegion_t region = region_of(board, victim, index);
    const bool closed = board->has_cut[victim] && board->cut_closed[victim][index];
    if (region.magic != FLEXCCL_REGION_MAGIC || closed) continue;
    CHECK(region.done <= region.entered && region.bytes == kRegionBytes);
    if (!bring_back(board, victim, index, region.comm, static_cast<int>(region.slot), gone)) return;
  }
  // Those get their regions from the program, when it makes them.
  flexcclChild_t child;
  for (int index = kProgramRegions; index < kRegions && find_child(board, victim, &child); ++index)
    if (!bring_back(board, victim, index, child.comm, child.slot, gone)) return;
  board->all_returned[victim] = true;
}

// What a new process ends with that gets no place in a communicator: the survivors have ended it
// since the agents asked them. The next process is told so, and needs no other rank
// (`flexcclAdopt`).
inline constexpr int kNoPlace = 3;

// In the new process: every communicator that the agents bring.
inline void come_back(JobBoard* board, int rank) {
  const auto next = [&] {
    for (int index = 0; index < kRegions; ++index)
      if (board->back[rank][index].stage == 1) return index;
    return -1;
  };
  for (;;) {
    if (!comes([&] { return next() >= 0 || board->all_returned[rank]; })) return;
    const int index = next();
    if (index < 0) return;
    Return& back = board->back[rank][index];
    std::byte* region = board->regions[rank][index];
    ncclComm_t comm = nullptr;
    if (back.joins) {
      must(ncclInitNewNode(&comm, &back.exported, back.slot, &back.fresh), "ncclInitNewNode");
      must(flexcclReplay(comm, region, kRegionBytes, back.operation), "flexcclReplay");
    } else {
      must(flexcclAdopt(&comm, region, kRegionBytes, back.operation), "flexcclAdopt");
    }
    back.stage = 2;
    if (!comes([&] { return back.stage == 3; })) return;
    // A child's place is taken when the program makes it again, or now if it does not.
    const bool at_cut = cut_of(*board, rank, index);
    if (!back.joins || (!at_cut && back.is_child)) continue;
    const ncclResult_t placed = ncclCommSetupNewRank(comm);
    if (placed == ncclRemoteError) _exit(kNoPlace);
    must(placed, "ncclCommSetupNewRank");
  }
}

template <class Body>
pid_t start_process(Body body) {
  const pid_t pid = fork();
  if (pid) return pid;
  alarm(35);
  const int code = body();
  _exit(code ? code : check::failures());
}

#endif  // PYFT_TESTS_FLEXCCL_AGENT_H_
