// Ranks are processes, and are ended by SIGKILL at every place of ncclCommInitRank: the first time,
// and those that come in their place as well. The parent process is their agent: which ranks the
// others have met without it gets its place from one of them. It must not have threads before it
// forks.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "crew.h"

namespace {

constexpr int kMost = 4, kSums = 3, kCount = 1000;

enum class Order { kNone, kExport, kReplace, kDone, kFailed };
enum class Phase { kNew, kMaking, kMade };
enum class Place { kNone, kExported, kFresh, kJoin };

struct Seat {
  std::atomic<Phase> phase;
  std::atomic<Place> place;
  std::atomic<Order> order;
  std::atomic<bool> lost, alive;
  std::atomic<std::uint64_t> number;
  int slot;             // that the order is about
  flexcclInfo_t info;   // of the order, or its answer
  flexcclInfo_t given;  // what this rank gets its place with
  std::atomic<int> lives;
  float sums[kSums];
};

struct JobBoard {
  Seat seats[kMost];
  ncclUniqueId id;
  std::atomic<bool> has_id;
  std::atomic<int> finished;
};

Seat* own = nullptr;

// In a rank, as flexcclSetMaking says.
int making(std::uint64_t number, int rank, int, int lost) {
  own->number = number;
  if (!lost) {
    own->phase = Phase::kMaking;
    return own->lives > 1;
  }
  own->lost = true;
  if (own->place != Place::kExported) return 0;
  ncclComm_t comm;
  must(ncclInitNewNode(&comm, &own->given, rank, &own->info), "ncclInitNewNode");
  must(flexcclReplay(comm, nullptr, 0, 0), "flexcclReplay");
  own->place = Place::kFresh;
  if (!comes([] { return own->place == Place::kJoin; })) return 0;
  must(ncclCommSetupNewRank(comm), "ncclCommSetupNewRank");
  return 1;
}

void obey(const JobBoard* board, int nranks) {
  while (board->finished < nranks) {
    usleep(100);
    const Order order = own->order;
    ncclComm_t comm;
    bool ok = false;
    if (order == Order::kExport)
      ok = flexcclFind(own->number, &comm) == ncclSuccess &&
           ncclCommExportInfo(comm, own->slot, &own->info) == ncclSuccess;
    else if (order == Order::kReplace)
      ok = flexcclReplaceLater(own->number, own->slot, &own->info) == ncclSuccess;
    else
      continue;
    own->order = ok ? Order::kDone : Order::kFailed;
  }
}

int live(JobBoard* board, int nranks, int rank, const std::string& rules) {
  alarm(60);
  own = &board->seats[rank];
  if (!rules.empty()) must(flexcclSetFault(rules.c_str()), "flexcclSetFault");
  must(flexcclSetMaking(making), "flexcclSetMaking");
  if (rank == 0 && !board->has_id) {
    must(ncclGetUniqueId(&board->id), "ncclGetUniqueId");
    board->has_id = true;
  }
  std::thread agent([&] { obey(board, nranks); });
  ncclComm_t comm;
  if (!comes([&] { return board->has_id.load(); })) return 1;
  must(ncclCommInitRank(&comm, nranks, board->id, rank), "ncclCommInitRank");
  own->phase = Phase::kMade;
  std::vector<float> values(kCount);
  for (int k = 0; k < kSums; ++k) {
    std::fill(values.begin(), values.end(), 1.0f / static_cast<float>(rank + k + 3));
    must(ncclAllReduce(values.data(), values.data(), kCount, ncclFloat32, ncclSum, comm, nullptr),
         "ncclAllReduce");
    must(flexcclSynchronize(comm), "flexcclSynchronize");
    own->sums[k] = values.back();
  }
  ++board->finished;
  if (!comes([&] { return board->finished == nranks; })) return 4;
  agent.join();
  must(ncclCommDestroy(comm), "ncclCommDestroy");
  return 0;
}

// The parent's part.
class Job {
 public:
  Job(int nranks, std::vector<std::string> lives) : nranks_(nranks), lives_(std::move(lives)) {
    board_ = static_cast<JobBoard*>(
        mmap(nullptr, sizeof(JobBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int rank = 0; rank < nranks; ++rank) start(rank);
  }
  ~Job() { munmap(board_, sizeof(JobBoard)); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool run() {
    return comes([&] {
      see_deaths();
      for (int rank = 0; rank < nranks_; ++rank)
        if (seat(rank).lost && seat(rank).phase == Phase::kMaking) give_place(rank);
      return ended_ == nranks_;
    });
  }
  int deaths() const { return deaths_; }
  std::vector<float> sums(int rank) const {
    const Seat& of = board_->seats[rank];
    return {of.sums, of.sums + kSums};
  }

 private:
  Seat& seat(int rank) { return board_->seats[rank]; }
  void start(int rank) {
    Seat& at = seat(rank);
    at.phase = Phase::kNew, at.place = Place::kNone, at.order = Order::kNone;
    at.lost = false, at.alive = true;
    const auto life = static_cast<std::size_t>(at.lives++);
    const std::string rules = life < lives_.size() ? lives_[life] : "";
    pids_[rank] = fork();
    if (pids_[rank]) return;
    const int code = live(board_, nranks_, rank, rules);
    _exit(code ? code : check::failures());
  }
  void see_deaths() {
    for (int rank = 0; rank < nranks_; ++rank) {
      int status = 0;
      if (!pids_[rank] || waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
      seat(rank).alive = false;
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        ++deaths_;
        start(rank);
      } else {
        CHECK_EQ(status, 0);
        pids_[rank] = 0, ++ended_;
      }
    }
  }
  bool carry_out(int rank, Order order, int slot) {
    Seat& at = seat(rank);
    at.slot = slot, at.order = order;
    comes([&] {
      see_deaths();
      return at.order != order;
    });
    return at.order == Order::kDone;
  }
  void give_place(int rank) {
    Seat& at = seat(rank);
    const int life = at.lives;
    const auto over = [&] { return at.lives != life || at.phase == Phase::kMade; };
    int source = 0;
    while (source < nranks_ && (source == rank || seat(source).phase != Phase::kMade)) ++source;
    if (source == nranks_ || !carry_out(source, Order::kExport, rank)) return;
    if (at.lives != life) return;  // it has died meanwhile
    at.given = seat(source).info;
    at.place = Place::kExported;
    const auto turn = [&] {
      see_deaths();
      return over() || at.place == Place::kFresh;
    };
    if (!comes(turn) || over()) return;
    for (int other = 0; other < nranks_; ++other) {
      const bool lost = seat(other).lost && seat(other).phase == Phase::kMaking;
      if (other == rank || lost || seat(other).phase == Phase::kNew) continue;
      seat(other).info = at.info;
      carry_out(other, Order::kReplace, rank);
    }
    at.place = Place::kJoin;
    comes([&] {
      see_deaths();
      return over();
    });
    at.lost = false;
  }

  const int nranks_;
  const std::vector<std::string> lives_;  // rules, by how often a rank has been started
  JobBoard* board_;
  pid_t pids_[kMost] = {};
  int deaths_ = 0, ended_ = 0;
};

std::string at(int rank, int place) {
  return "kill:rank=" + std::to_string(rank) + ",on=init,frame=" + std::to_string(place);
}

// Which rank comes how far when another one dies depends on their turns: where a later rule has not
// come to pass, the job is done again.
constexpr int kTries = 40;

bool ends_well(int nranks, const std::vector<std::string>& lives, int most, int* deaths) {
  Job job(nranks, lives), undisturbed(nranks, {});
  bool well = job.run() && undisturbed.run() && job.deaths() <= most;
  *deaths = job.deaths();
  for (int rank = 0; rank < nranks; ++rank) well &= job.sums(rank) == undisturbed.sums(0);
  return well;
}

void check_job(int nranks, const std::vector<std::string>& lives, int deaths, int most = 0) {
  int died = 0, tries = 0;
  bool well = true;
  while (well && died < deaths && tries++ < kTries)
    well = ends_well(nranks, lives, std::max(deaths, most), &died);
  if (!well || died < deaths) {
    std::cerr << nranks << " ranks, rules";
    for (const std::string& rules : lives) std::cerr << " [" << rules << "]";
    std::cerr << ": " << died << " deaths\n";
  }
  CHECK(well);
  CHECK(died >= deaths);  // each rule has come to pass, once
}

constexpr int kPlaces = 6;

void prepare() {
  flexcclSetTimeout(20000);
  flexcclSetRepair(20000);
}

}  // namespace

TEST(one_rank_dies_anywhere) {
  prepare();
  for (const int nranks : {2, 3, 4})
    for (int rank = 0; rank < nranks; ++rank)
      for (int place = 1; place <= kPlaces; ++place) check_job(nranks, {at(rank, place)}, 1);
}

TEST(two_ranks_die_and_one_dies_twice) {
  prepare();
  for (int first = 2; first <= kPlaces; ++first)
    for (int second = 2; second <= kPlaces; ++second) {
      check_job(3, {at(0, first) + ";" + at(2, second)}, 2);
      // Once the other one may have it, the next gets its place from there, and comes to none of
      // the later places.
      if (first == 2 || second <= 3) check_job(2, {at(1, first), at(1, second)}, 2);
    }
}

TEST(who_answers_dies_when_some_know_the_others) {
  prepare();
  for (const int nranks : {2, 3, 4})
    for (int answer = 1; answer <= nranks; ++answer)
      // So does each of the others that answers when the first one is gone.
      check_job(nranks, {"kill:on=answer,frame=" + std::to_string(answer)}, 1, nranks);
}

CHECK_MAIN
