// What it costs to make a communicator and to replace, remove and add one of its ranks.
//
//   ccl_repair processes|threads RANKS REPEATS auto|loopback|shm|tcp
//
// RANKS + 1 workers: one is the spare that takes a place. Each phase begins at a barrier of those
// that have something to do in it, while the others sleep; a sample is the time from its release
// until the last of them is done. "replace" is called by the two neighbours of the new rank, the
// others hear of it in their next operation ("exchange after"); "replace, all called" by all.
// Prints JSON: phase -> samples of wall time, of processor time of all workers together, in
// milliseconds.
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ccl_board.h"

namespace {

struct Options {
  bool threads;
  int ranks, repeats;
  flexcclTransport_t transport;
};

void check(ncclResult_t code, ncclComm_t comm, const char* what) {
  if (code == ncclSuccess) return;
  give_up((std::string(what) + ": " + ncclGetLastError(comm)).c_str());
}

class Worker {
 public:
  Worker(Board& board, const Options& options, int number)
      : board_(board), options_(options), number_(number), slot_(number) {}

  void run() {
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      timed([] {});  // what the barrier alone costs
      newcomer(0, nothing(), false);
      newcomer(0, nothing(), true);
      make();
      timed([this] { exchange(-1); });
      timed([this] { exchange(-1); });
      const int lost = repeat % options_.ranks;
      replace(lost, true);
      replace((lost + 1) % options_.ranks, false);
      remove(lost);
      add(lost);
      end();
    }
  }

  static const std::vector<std::string>& phases() {
    static const std::vector<std::string> names{"barrier",
                                                "wake all",
                                                "wake neighbours",
                                                "init",
                                                "first exchange",
                                                "exchange",
                                                "replace",
                                                "exchange after",
                                                "replace, all called",
                                                "exchange after all",
                                                "remove",
                                                "exchange without",
                                                "add",
                                                "exchange with"};
    return names;
  }

 private:
  bool is_spare() const { return slot_ < 0 || slot_ == options_.ranks; }
  std::uint32_t members() const { return static_cast<std::uint32_t>(options_.ranks) + 2; }

  void timed(const std::function<void()>& body) {
    Clocks& mine = begin_phase();
    board_.all.wait_for(members());
    run_timed(mine, body);
    end_phase(mine);
  }

  // The others sleep, as ranks do that have nothing to do with it.
  void timed_by_few(bool takes_part, std::uint32_t few, const std::function<void()>& body) {
    Clocks& mine = begin_phase();
    mine.start_ms = 0;
    if (takes_part) {
      board_.all.watch_until(members() - few);
      board_.few.wait_for(few);
      run_timed(mine, body);
    }
    board_.all.wait_for(members());
    end_phase(mine);
  }

  Clocks& begin_phase() {
    // Main reads one set of clocks while the workers write the other.
    Clocks& mine = board_.clocks[phase_++ % 2][number_];
    mine.cpu_start_ms = cpu_ms();
    return mine;
  }
  static void run_timed(Clocks& mine, const std::function<void()>& body) {
    mine.start_ms = clock_ms(CLOCK_MONOTONIC);
    body();
    mine.end_ms = clock_ms(CLOCK_MONOTONIC);
  }
  void end_phase(Clocks& mine) {
    board_.all.wait_for(members());
    mine.cpu_end_ms = cpu_ms();
    board_.all.wait_for(members());
  }

  double cpu_ms() const {
    if (options_.threads && number_ != 0) return 0;  // worker 0 counts for the whole process
    return clock_ms(CLOCK_PROCESS_CPUTIME_ID);
  }

  void make() {
    if (slot_ == 0) check(ncclGetUniqueId(&board_.id), nullptr, "ncclGetUniqueId");
    timed([this] {
      if (!is_spare())
        check(ncclCommInitRank(&comm_, options_.ranks, board_.id, slot_), nullptr, "init");
    });
  }

  // One message to the next rank and one from the previous one: connects the ring where needed.
  void exchange(int without) {
    if (is_spare() || slot_ == without) return;
    const int n = options_.ranks;
    int next = (slot_ + 1) % n, previous = (slot_ + n - 1) % n;
    if (next == without) next = (next + 1) % n;
    if (previous == without) previous = (previous + n - 1) % n;
    if (next == slot_) return;
    ncclGroupStart();
    ncclSend(&sent_, 1, ncclInt32, next, comm_, nullptr);
    ncclRecv(&received_, 1, ncclInt32, previous, comm_, nullptr);
    check(ncclGroupEnd(), comm_, "exchange");
    check(flexcclSynchronize(comm_), comm_, "exchange");
  }

  void leave(int lost) {
    if (slot_ != lost) return;
    check(ncclCommAbort(comm_), nullptr, "abort");
    comm_ = nullptr;
  }

  // What the ranks call when a new one comes.
  struct Calls {
    std::function<void()> export_info, answer, take, set_up;
  };

  static Calls nothing() {
    const auto none = [] {};
    return {none, none, none, none};
  }

  Calls calls(int lost, const std::function<void()>& take) {
    return {[=, this] {
              check(ncclCommExportInfo(comm_, lost, &board_.survivor_info), comm_, "export");
            },
            [=, this] {
              check(ncclInitNewNode(&comm_, &board_.survivor_info, lost, &board_.newcomer_info),
                    nullptr, "ncclInitNewNode");
            },
            take, [this] { check(ncclCommSetupNewRank(comm_), comm_, "ncclCommSetupNewRank"); }};
  }

  // A survivor exports, the spare answers, the neighbours or all others take the answer. Which rank
  // waits for which is the same with calls that do nothing: that is what waking alone costs.
  void newcomer(int lost, const Calls& calls, bool few) {
    const std::uint32_t exports = board_.exported.value, answers = board_.answered.value;
    const int n = options_.ranks, next = (lost + 1) % n, previous = (lost + n - 1) % n;
    const bool neighbour = !is_spare() && (slot_ == next || slot_ == previous);
    const auto part = [&, this] {
      if (slot_ == next) {
        calls.export_info();
        board_.exported.raise();
      }
      if (is_spare()) {
        board_.exported.wait_past(exports);
        calls.answer();
        board_.answered.raise();
        calls.set_up();
      } else if (slot_ != lost) {
        board_.answered.wait_past(answers);
        calls.take();
      }
    };
    few ? timed_by_few(neighbour || is_spare(), 3, part) : timed(part);
  }

  void take_place(int lost) {
    if (slot_ == lost)
      slot_ = -1;
    else if (is_spare())
      slot_ = lost;
  }

  void replace(int lost, bool few) {
    leave(lost);
    const auto take = [=, this] {
      check(ncclReplaceNode(comm_, lost, &board_.newcomer_info), comm_, "ncclReplaceNode");
    };
    newcomer(lost, calls(lost, take), few);
    take_place(lost);
    timed([this] { exchange(-1); });
  }

  void remove(int lost) {
    leave(lost);
    timed([&] {
      if (comm_) check(ncclRemoveNode(comm_, lost), comm_, "ncclRemoveNode");
    });
    timed([&] { exchange(lost); });
  }

  void add(int lost) {
    newcomer(
        lost,
        calls(lost,
              [this] { check(ncclAddNode(comm_, &board_.newcomer_info), comm_, "ncclAddNode"); }),
        false);
    take_place(lost);
    timed([this] { exchange(-1); });
  }

  void end() {
    if (comm_) check(ncclCommDestroy(comm_), nullptr, "destroy");
    comm_ = nullptr;
    slot_ = number_;
    board_.all.wait_for(members());
  }

  Board& board_;
  const Options& options_;
  int number_, slot_, phase_ = 0;
  ncclComm_t comm_ = nullptr;
  std::int32_t sent_ = 1, received_ = 0;
};

using Samples = std::map<std::string, std::vector<Sample>>;

// The main thread's part of every worker's barriers.
void collect(Board& board, const Options& options, Samples& samples) {
  const auto members = static_cast<std::uint32_t>(options.ranks) + 2;
  const std::size_t workers = members - 1;
  int number = 0;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (const std::string& phase : Worker::phases()) {
      board.all.wait_for(members);
      board.all.wait_for(members);
      board.all.wait_for(members);
      samples[phase].push_back(sample_of({board.clocks[number++ % 2], workers}));
    }
    board.all.wait_for(members);
  }
}

void print(const Samples& samples) {
  const char* separator = "{";
  for (const std::string& phase : Worker::phases()) {
    std::printf("%s\"%s\": {", separator, phase.c_str());
    separator = ", ";
    for (const bool wall : {true, false}) {
      std::printf("%s", wall ? "\"wall_ms\": [" : "], \"cpu_ms\": [");
      const char* comma = "";
      for (const Sample& sample : samples.at(phase)) {
        std::printf("%s%.3f", comma, wall ? sample.wall_ms : sample.cpu_ms);
        comma = ", ";
      }
    }
    std::printf("]}");
  }
  std::printf("}\n");
}

void run_threads(Board& board, const Options& options, Samples& samples) {
  std::vector<std::thread> threads;
  for (int i = 0; i <= options.ranks; ++i)
    threads.emplace_back([&, i] { Worker(board, options, i).run(); });
  collect(board, options, samples);
  for (std::thread& thread : threads) thread.join();
}

void child_ended(int) {
  int status = 0;
  while (waitpid(-1, &status, WNOHANG) > 0)
    if (status != 0) std::_Exit(1);  // the others die with this process
}

void run_processes(Board& board, const Options& options, Samples& samples) {
  std::signal(SIGCHLD, child_ended);
  for (int i = 0; i <= options.ranks; ++i) {
    const pid_t child = fork();
    if (child < 0) give_up("fork failed");
    if (child > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Worker(board, options, i).run();
    std::_Exit(0);
  }
  collect(board, options, samples);
}

flexcclTransport_t transport_named(std::string_view name) {
  if (name == "auto") return flexcclAuto;
  if (name == "loopback") return flexcclLoopback;
  if (name == "shm") return flexcclShm;
  if (name == "tcp") return flexcclTcp;
  give_up("the transport is auto, loopback, shm or tcp");
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) give_up("processes|threads RANKS REPEATS auto|loopback|shm|tcp");
  const Options options{std::string_view(words[1]) == "threads", std::atoi(words[2]),
                        std::atoi(words[3]), transport_named(words[4])};
  if (options.ranks < 3 || options.ranks + 2 > Board::kMaxWorkers || options.repeats < 1)
    give_up("3 to 1024 ranks, 1 or more repeats");
  flexcclSetTransport(options.transport);
  flexcclSetTimeout(kDeadlineS * 1000);
  flexcclSetReservedSlots(1);
  Board* board = Board::make();
  Samples samples;
  if (options.threads)
    run_threads(*board, options, samples);
  else
    run_processes(*board, options, samples);
  print(samples);
}
