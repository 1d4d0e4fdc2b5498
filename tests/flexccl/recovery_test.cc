// A program that makes, uses, splits, shrinks and destroys communicators, in processes. One of them
// is killed somewhere; nothing but its regions is left. A new process goes back to the cut, repeats
// the program, and all end with the bits of a run without failure. No threads before the forks.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "agent.h"

namespace {

constexpr std::size_t kUnit = 1500, kValues = kJobRanks * kUnit;  // large enough to be shared
constexpr int kSteps = 24, kCut = 9;
using Values = std::array<float, kValues>;

// One rank's program: what it computed, and the communicators that it has.
struct Life {
  std::mutex stay_alive = {};
  bool is_over = false;
  JobBoard* board;
  int rank;
  Values values;
  ncclComm_t comms[kRegions] = {};

  void keep(int index) {
    CHECK(comms[index]);
    must(flexcclSetRecords(comms[index], board->regions[rank][index], kRegionBytes), "records");
  }
  void mix(const Values& other) {
    for (std::size_t i = 0; i < kValues; ++i) values[i] = 0.75f * values[i] + 0.3f * other[i];
  }
  void init(int index) {
    // A rank that dies in here was never one: the job begins again.
    const std::scoped_lock alive(stay_alive);
    must(ncclCommInitRank(&comms[index], kJobRanks, board->ids[index], rank), "ncclCommInitRank");
    keep(index);
  }
  void drop(int index) {
    must(ncclCommDestroy(std::exchange(comms[index], nullptr)), "ncclCommDestroy");
  }
  ncclResult_t pass(ncclComm_t comm, Values* to) {
    const int next = (rank + 1) % kJobRanks, last = (rank + kJobRanks - 1) % kJobRanks;
    ncclGroupStart();
    ncclAllReduce(values.data(), values.data(), 8, ncclFloat32, ncclMax, comm, nullptr);
    ncclSend(values.data(), kValues, ncclFloat32, next, comm, nullptr);
    ncclSend(values.data(), 7, ncclFloat32, next, comm, nullptr);
    ncclRecv(to->data(), kValues, ncclFloat32, last, comm, nullptr);
    ncclRecv(to->data() + kUnit, 7, ncclFloat32, last, comm, nullptr);
    return ncclGroupEnd();
  }
  ncclResult_t collective(int step, ncclComm_t comm, int peers, Values* to);
  void shrink(int index);
  bool run(int step);
};

ncclResult_t Life::collective(int step, ncclComm_t comm, int peers, Values* to) {
  float* in = values.data();
  switch (step % 8) {
    case 0:
      return ncclAllReduce(in, in, kValues, ncclFloat32, ncclAvg, comm, nullptr);
    case 1:
      return ncclReduceScatter(in, to->data(), kUnit, ncclFloat32, ncclSum, comm, nullptr);
    case 2:
      return ncclBcast(to->data(), kValues, ncclFloat32, step / 8 % peers, comm, nullptr);
    case 3:
      return ncclAlltoAll(in, to->data(), kUnit, ncclFloat32, comm, nullptr);
    case 4:
      return ncclAllGather(in, to->data(), kUnit, ncclFloat32, comm, nullptr);
    case 5:
      return ncclReduce(in, to->data(), kValues, ncclFloat32, ncclMax, step % peers, comm, nullptr);
    case 6:
      return ncclGather(in, to->data(), kUnit, ncclFloat32, step % peers, comm, nullptr);
    default:
      return ncclScatter(in, to->data(), kUnit, ncclFloat32, step % peers, comm, nullptr);
  }
}

// All but the last rank, whose regions have no hole by that.
void Life::shrink(int index) {
  int left_out = kJobRanks - 1;
  if (rank == left_out) return;
  must(ncclCommShrink(comms[0], &left_out, 1, &comms[index], nullptr, 0), "ncclCommShrink");
  keep(index);
}

// One step of the program; false: it failed.
bool Life::run(int step) {
  ncclComm_t comm = comms[0];
  int peers = kJobRanks;
  Values other = values;
  switch (step) {
    case 3:
      must(ncclCommSplit(comm, rank % 2, -rank, &comms[1], nullptr), "ncclCommSplit");
      return keep(1), true;
    case 6:
      return init(2), true;
    case 10:
      return init(3), true;
    case 13:  // after a collective of all: flexccl/README.md says what is not covered
      return shrink(5), true;
    case 16:
      must(ncclCommSplit(comm, 0, rank, &comms[4], nullptr), "ncclCommSplit");
      return keep(4), true;
    case 4:
    case 9:
    case 17:
      comm = comms[1], peers = 2;
      break;
    case 7:
      comm = comms[2];
      break;
    case 11:
      comm = comms[3];
      break;
    case 15:
      comm = comms[5], peers = 3;
      break;
    case 18:
    case 22:
      comm = comms[4];
      break;
    default:
      break;
  }
  if (!comm) return true;
  const bool passes = step == 5 || step == 14 || step == 19 || step == 22;
  const ncclResult_t code = passes ? pass(comm, &other) : collective(step, comm, peers, &other);
  if (code != ncclSuccess || flexcclSynchronize(comm) != ncclSuccess) {
    std::cerr << "rank " << rank << ", step " << step << ": " << ncclGetLastError(comm) << "\n";
    return false;
  }
  // All have begun this one, so none needs anything of the communicator any more.
  if (step == 8 || step == 12) drop(step == 8 ? 2 : 3);
  return mix(other), true;
}

struct Shared {
  JobBoard board;
  Values values[kJobRanks], at_cut[kJobRanks];
};

// Where a rank is to die in its cut: before or after that counts.
enum class CutDeath { kNone, kBefore, kAfter };

void take_cut(Shared* job, const Life& life, CutDeath dies) {
  for (int i = 0; i < kRegions; ++i) {
    const bool used = region_of(&job->board, life.rank, i).magic != 0;
    job->board.cut_closed[life.rank][i] = used && !life.comms[i];
    if (!life.comms[i]) continue;
    const std::uint64_t operation = state_of(life.comms[i]).operation;
    job->board.cut_operation[life.rank][i] = operation + 1;
  }
  job->at_cut[life.rank] = life.values;
  if (dies == CutDeath::kBefore) kill(getpid(), SIGKILL);
  job->board.has_cut[life.rank] = true;  // from here on a replacement begins at the cut
  if (dies == CutDeath::kAfter) kill(getpid(), SIGKILL);
  for (int i = 0; i < kRegions; ++i)
    if (life.comms[i])
      must(flexcclCommitted(life.comms[i], job->board.cut_operation[life.rank][i] - 1), "commit");
}

// How a process is to die.
struct Death {
  std::string rule = "";  // of flexcclSetFault
  int step = -1;          // before it
  int operation = -1;     // so long after it has begun, wherever it is then
  useconds_t later_us = 0;
  CutDeath in_cut = CutDeath::kNone;
};

int live(Shared* job, Life& life, int from, const Death& death) {
  for (int step = from; step < kSteps; ++step) {
    if (step == death.step) kill(getpid(), SIGKILL);
    if (step == kCut && !job->board.has_cut[life.rank]) take_cut(job, life, death.in_cut);
    if (!life.run(step)) return 2;
  }
  {
    const std::scoped_lock alive(life.stay_alive);
    life.is_over = true;
  }
  job->values[life.rank] = life.values;
  ++job->board.finished;
  if (!comes([&] { return job->board.finished == kJobRanks; })) return 4;
  for (ncclComm_t comm : life.comms)
    if (comm) must(ncclCommDestroy(comm), "ncclCommDestroy");
  return 0;
}

void no_divergence(std::uint64_t, std::uint64_t, const char*) {
  std::abort();
}

void wait_and_die(Life& life, const Death& death) {
  const auto reached = [&] {
    return region_of(life.board, life.rank, 0).entered >=
           static_cast<std::uint64_t>(death.operation);
  };
  if (!comes(reached)) return;
  usleep(death.later_us);
  const std::scoped_lock alive(life.stay_alive);
  if (!life.is_over) kill(getpid(), SIGKILL);
}

void begin(Life& life, const Death& death) {
  if (!death.rule.empty()) must(flexcclSetFault(death.rule.c_str()), "flexcclSetFault");
  must(flexcclSetContents(life.board->store, kStoreBytes, life.rank), "flexcclSetContents");
  for (std::size_t i = 0; i < kValues; ++i)
    life.values[i] = 1.0f / static_cast<float>(5 * i + 3 * static_cast<std::size_t>(life.rank) + 1);
}

int first_life(Shared* job, int rank, const Death& death) {
  Life life{.board = &job->board, .rank = rank, .values = {}};
  begin(life, death);
  std::thread agent([&] { answer_agents(&job->board, rank); });
  life.init(0);
  std::thread end;
  if (death.operation >= 0) end = std::thread([&] { wait_and_die(life, death); });
  const int code = live(job, life, 0, death);
  if (end.joinable()) end.join();
  agent.join();
  return code;
}

int second_life(Shared* job, int rank, const Death& death) {
  JobBoard* board = &job->board;
  Life life{.board = board, .rank = rank, .values = {}};
  begin(life, death);
  must(flexcclSetDiverged(no_divergence), "flexcclSetDiverged");
  std::thread agent([&] { answer_agents(board, rank); });
  come_back(board, rank);
  const bool has_cut = board->has_cut[rank];
  if (has_cut) life.values = job->at_cut[rank];
  for (int i = 0; i < kRegions; ++i)
    if (cut_of(*board, rank, i))
      must(flexcclFind(region_of(board, rank, i).comm, &life.comms[i]), "flexcclFind");
  if (!has_cut) life.init(0);
  const int code = live(job, life, has_cut ? kCut : 0, death);
  agent.join();
  return code;
}

class Job {
 public:
  Job() {
    shared_ = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (ncclUniqueId& id : shared_->board.ids) must(ncclGetUniqueId(&id), "ncclGetUniqueId");
  }
  ~Job() { munmap(shared_, sizeof(Shared)); }

  // The victim and those that replace it die one after the other. Returns how many deaths there
  // were.
  int run(int victim, const std::vector<Death>& deaths) {
    for (int rank = 0; rank < kJobRanks; ++rank) {
      shared_->board.alive[rank] = true;
      const Death death = rank == victim && !deaths.empty() ? deaths[0] : Death();
      start(rank, [&] { return first_life(shared_, rank, death); });
    }
    int died = 0, without_place = 0;
    for (End how = wait_for(victim); how != End::kWell; how = wait_for(victim)) {
      died += how == End::kKilled;
      without_place += how == End::kNoPlace;
      if (without_place > kRegions) CHECK(!"each communicator ends once");
      if (check::failures()) break;
      replace(victim, died < static_cast<int>(deaths.size()) ? deaths[died] : Death());
    }
    end();
    return died;
  }
  template <class Body>
  void start(int rank, Body body) {
    pids_[rank] = start_process(body);
  }
  void replace(int victim, const Death& next = {}) {
    JobBoard& board = shared_->board;
    board.alive[victim] = false;
    for (Return& back : board.back[victim]) back.stage = 0;
    board.all_returned[victim] = false;
    board.mail[victim].state = 0;
    start(victim, [&] { return second_life(shared_, victim, next); });
    recover(&board, victim, [&] { return waitid_now(victim); });
    board.alive[victim] = true;
  }
  enum class End { kWell, kKilled, kNoPlace };
  End wait_for(int rank) {
    int status = 0;
    waitpid(pids_[rank], &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return End::kKilled;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoPlace) return End::kNoPlace;
    CHECK_EQ(status, 0);
    pids_[rank] = 0;
    return End::kWell;
  }
  void end() {
    for (int rank = 0; rank < kJobRanks; ++rank)
      if (pids_[rank]) CHECK(wait_for(rank) == End::kWell);
  }
  std::vector<Values> values() const { return {shared_->values, shared_->values + kJobRanks}; }

 private:
  bool waitid_now(int rank) const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pids_[rank]), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }

  Shared* shared_;
  pid_t pids_[kJobRanks] = {};
};

// A directory where the ranks meet: ids are made before the forks, without a thread.
struct Meeting {
  std::string path = (std::filesystem::temp_directory_path() / "flexccl-recovery-XXXXXX").string();
  Meeting() {
    CHECK(mkdtemp(path.data()));
    setenv("FLEXCCL_RENDEZVOUS", ("file:" + path).c_str(), 1);
    flexcclSetTransport(flexcclShm);
    flexcclSetTimeout(20000);
    flexcclSetRepair(20000);
  }
  ~Meeting() { std::filesystem::remove_all(path); }
};

const std::vector<Values>& undisturbed() {
  static const std::vector<Values> values = [] {
    Job job;
    CHECK_EQ(job.run(0, {}), 0);
    return job.values();
  }();
  return values;
}

// Says where it went wrong. Children inherit the count of failures: the first one ends the test.
bool all_is_well(Job& job, const std::string& where) {
  CHECK(job.values() == undisturbed());
  if (check::failures()) std::cerr << "after " << where << "\n";
  return check::failures() == 0;
}

std::string kill_at_frame(int victim, int frame) {
  return "kill,rank=" + std::to_string(victim) + ",frame=" + std::to_string(frame) + ",bytes=128";
}

}  // namespace

TEST(a_rank_killed_before_any_step_comes_back) {
  const Meeting meeting;
  undisturbed();
  for (int step = 0; step < kSteps; ++step) {
    Job job;
    CHECK_EQ(job.run(step % kJobRanks, {{.step = step}}), 1);
    if (!all_is_well(job, "step " + std::to_string(step))) return;
  }
}

TEST(a_rank_killed_in_its_cut_comes_back) {
  const Meeting meeting;
  undisturbed();
  for (int victim = 0; victim < kJobRanks; ++victim) {
    Job job;
    CHECK_EQ(job.run(victim, {{.in_cut = CutDeath::kBefore}, {.in_cut = CutDeath::kAfter}}), 2);
    if (!all_is_well(job, "the cut of rank " + std::to_string(victim))) return;
  }
}

TEST(a_rank_killed_at_any_frame_comes_back) {
  const Meeting meeting;
  undisturbed();
  int died = 1;
  for (int frame = 1; died; ++frame) {
    Job job;
    died = job.run(frame % kJobRanks, {{.rule = kill_at_frame(frame % kJobRanks, frame)}});
    CHECK(died || frame > 30);
    if (!all_is_well(job, "frame " + std::to_string(frame))) return;
  }
}

TEST(a_replacement_may_die_as_well) {
  const Meeting meeting;
  undisturbed();
  for (int step = 2; step < kSteps; step += 3) {
    const int victim = step / 3 % kJobRanks;
    Job job;
    // In the replay, at its first frames, and after the place where the first one died.
    CHECK(job.run(victim, {{.step = step},
                           {.step = std::max(step - 4, step > kCut ? kCut : 0)},
                           {.rule = kill_at_frame(victim, 1 + step % 5)},
                           {.step = step + 1}}) >= 2);
    if (!all_is_well(job, "step " + std::to_string(step))) return;
  }
}

TEST(a_rank_killed_at_any_moment_comes_back) {
  const Meeting meeting;
  undisturbed();
  int deaths = 0;
  for (int round = 0; round < 40; ++round) {
    Job job;
    const auto later_us = static_cast<useconds_t>(round * 97 % 700);
    deaths += job.run(round % kJobRanks, {{.operation = 1 + round % 11, .later_us = later_us}});
    if (!all_is_well(job, "round " + std::to_string(round))) return;
  }
  CHECK(deaths > 20);
}

CHECK_MAIN
