// Ranks that are processes: one is ended by SIGKILL somewhere, a new process takes its slot and
// repeats from the records that outlived it. This test must not have threads before it forks.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "crew.h"
#include "script.h"

namespace {

// What a job's agent would carry between the processes, and the memory that it owns.
struct JobBoard {
  alignas(64) std::byte arenas[kRanks][1 << 20];
  State states[kRanks], committed[kRanks];
  std::atomic<std::uint64_t> position[kRanks];
  ncclUniqueId id;
  flexcclInfo_t exported, fresh;
  std::atomic<bool> has_id, wants_export, has_export, has_fresh;
  std::atomic<int> finished;
  bool apart;  // two hosts, as far as the ranks know, and only the neighbours are told of a repair
};

void go_to_host(const JobBoard* board, int rank) {
  if (board->apart) setenv("FLEXCCL_HOST", rank % 2 ? "one" : "two", 1);
}

int run_script(JobBoard* board, int rank, ncclComm_t comm, std::uint64_t from) {
  State& state = board->states[rank];
  for (int k = static_cast<int>(from); k < kOperations; ++k) {
    if (step(k, rank, comm, &state) != ncclSuccess || flexcclSynchronize(comm) != ncclSuccess) {
      std::cerr << "rank " << rank << ": " << ncclGetLastError(comm) << "\n";
      return 2;
    }
    if (static_cast<std::uint64_t>(k) + 1 != kCommitted) continue;
    board->committed[rank] = state;
    board->position[rank] = kCommitted;
    if (flexcclCommitted(comm, kCommitted) != ncclSuccess) return 3;
  }
  ++board->finished;
  // Others may still need what this rank keeps.
  if (!comes([&] { return board->finished == kRanks; })) return 4;
  return ncclCommDestroy(comm) == ncclSuccess ? 0 : 5;
}

// An agent's part in a surviving process: in a thread beside the script.
void survive(JobBoard* board, int rank, int victim, ncclComm_t comm) {
  const auto over = [&] { return board->finished == kRanks; };
  if (!comes([&] { return board->wants_export || over(); }) || over()) return;
  if (rank == (victim + 1) % kRanks) {
    must(ncclCommExportInfo(comm, victim, &board->exported), "ncclCommExportInfo");
    board->has_export = true;
  }
  if (board->apart && rank == (victim + 2) % kRanks) return;
  if (comes([&] { return board->has_fresh || over(); }) && board->has_fresh)
    must(ncclReplaceNode(comm, victim, &board->fresh), "ncclReplaceNode");
}

int first_life(JobBoard* board, int rank, int victim, const std::string& rule) {
  go_to_host(board, rank);
  if (rank == victim) must(flexcclSetFault(rule.c_str()), "flexcclSetFault");
  if (rank == 0) {
    ncclGetUniqueId(&board->id);
    board->has_id = true;
  }
  ncclComm_t comm;
  if (!comes([&] { return board->has_id.load(); }) ||
      ncclCommInitRank(&comm, kRanks, board->id, rank) != ncclSuccess)
    return 1;
  must(flexcclSetRecords(comm, board->arenas[rank], sizeof board->arenas[rank]), "records");
  board->states[rank] = start_state(rank);
  std::thread agent([&] { survive(board, rank, victim, comm); });
  const int code = run_script(board, rank, comm, 0);
  agent.join();
  return code;
}

int second_life(JobBoard* board, int rank) {
  go_to_host(board, rank);
  board->wants_export = true;
  ncclComm_t comm;
  if (!comes([&] { return board->has_export.load(); })) return 6;
  must(ncclInitNewNode(&comm, &board->exported, rank, &board->fresh), "ncclInitNewNode");
  const std::uint64_t position = board->position[rank];
  must(flexcclReplay(comm, board->arenas[rank], sizeof board->arenas[rank], position), "replay");
  board->states[rank] = position ? board->committed[rank] : start_state(rank);
  board->has_fresh = true;
  must(ncclCommSetupNewRank(comm), "ncclCommSetupNewRank");
  return run_script(board, rank, comm, position);
}

template <class Body>
pid_t start(Body body) {
  const pid_t pid = fork();
  if (pid) return pid;
  const int code = body();
  _exit(code ? code : check::failures());
}

// Returns the final states; `struck`: whether the rule did anything.
std::vector<State> run_job(flexcclTransport_t transport, int victim, const std::string& rule,
                           bool* struck, bool apart = false) {
  auto* board = static_cast<JobBoard*>(
      mmap(nullptr, sizeof(JobBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  board->apart = apart;
  flexcclSetTransport(transport);
  flexcclSetTimeout(20000);
  flexcclSetRepair(20000);
  pid_t pids[kRanks];
  for (int rank = 0; rank < kRanks; ++rank)
    pids[rank] = start([&] { return first_life(board, rank, victim, rule); });
  int status = 0;
  waitpid(pids[victim], &status, 0);
  *struck = WIFSIGNALED(status);
  if (*struck) pids[victim] = start([&] { return second_life(board, victim); });
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != victim || *struck) waitpid(pids[rank], &status, 0);
    CHECK_EQ(status, 0);
  }
  const std::vector<State> states(board->states, board->states + kRanks);
  munmap(board, sizeof(JobBoard));
  return states;
}

}  // namespace

TEST(killed_processes_are_replaced) {
  bool struck = false;
  const auto expected = run_job(flexcclShm, 0, "delay:frame=1,ms=1", &struck);
  CHECK(!struck);
  for (const auto transport : {flexcclShm, flexcclTcp, flexcclAuto})
    for (const int frame : {1, 9, 23, 38}) {
      const int victim = frame % kRanks;
      const auto states = run_job(
          transport, victim,
          "kill:rank=" + std::to_string(victim) + ",frame=" + std::to_string(frame) + ",bytes=128",
          &struck, transport == flexcclAuto);
      CHECK(struck);
      CHECK(states == expected);
    }
}

CHECK_MAIN
