// The rendezvous through files: ranks meet, what goes wrong has a sentence, nothing stays behind.
// That over TCP: what its root has to do.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "cluster.h"
#include "comes.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/root.h"

namespace {

namespace fs = std::filesystem;

// A directory that ncclGetUniqueId uses as long as this lives.
struct Directory {
  Directory() {
    char name[] = "/tmp/flexccl-test-XXXXXX";
    CHECK(mkdtemp(name) != nullptr);
    path = name;
    setenv("FLEXCCL_RENDEZVOUS", ("file:" + path.string()).c_str(), 1);
    flexcclSetTransport(flexcclAuto);
  }
  ~Directory() {
    unsetenv("FLEXCCL_RENDEZVOUS");
    fs::remove_all(path);
  }
  ncclUniqueId make_id(std::uint64_t timeout_ms) const {
    flexcclSetTimeout(timeout_ms);
    ncclUniqueId id;
    CHECK_EQ(ncclGetUniqueId(&id), ncclSuccess);
    return id;
  }
  fs::path folder() const { return fs::directory_iterator(path)->path(); }
  bool empty() const { return fs::is_empty(path); }
  fs::path path;
};

bool has(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "[" << part << "] is not in: " << text << "\n";
  return false;
}

// The sentence, empty for success.
std::string join(const ncclUniqueId& id, int rank, int nranks) {
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, nranks, id, rank) != ncclSuccess) return ncclGetLastError(nullptr);
  return ncclCommDestroy(comm) == ncclSuccess ? "" : "destroy failed";
}

// A process that is rank 1 of `nranks`, killed as soon as its file is there. Only in the first
// test: a process that forks must not have threads yet.
void leave_dead_rank(const Directory& directory, const ncclUniqueId& id, int nranks) {
  const pid_t child = fork();
  if (child == 0) {
    join(id, 1, nranks);
    _exit(0);
  }
  CHECK(comes([&] { return fs::exists(directory.folder() / "rank-1"); }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace

TEST(dead_rank_is_replaced_and_dead_job_removed) {
  const Directory directory;
  const ncclUniqueId id = directory.make_id(10000);
  leave_dead_rank(directory, id, 3);
  const fs::path folder = directory.folder();
  const fs::path dead_job = directory.path / "flexccl-00000000deadbeef";
  fs::create_directory(dead_job);
  fs::copy_file(folder / "rank-1", dead_job / "rank-1");
  const fs::path young_job = directory.path / "flexccl-00000000cafecafe";
  fs::create_directory(young_job);
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  CHECK_EQ(utimensat(AT_FDCWD, dead_job.c_str(), old, 0), 0);
  std::vector<std::thread> ranks;
  std::string sentences[3];
  for (int r = 0; r < 3; ++r) ranks.emplace_back([&, r] { sentences[r] = join(id, r, 3); });
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& sentence : sentences) CHECK_EQ(sentence, "");
  CHECK(fs::exists(dead_job));
  const ncclUniqueId next = directory.make_id(10000);  // looks around
  CHECK(!fs::exists(dead_job));
  CHECK(fs::exists(young_job));
  CHECK_EQ(join(next, 0, 1), "");
  fs::remove(young_job);
  CHECK(directory.empty());
}

TEST(ranks_meet_and_work_together) {
  const Directory directory;
  const ncclUniqueId id = directory.make_id(10000);
  struct stat status{};
  CHECK_EQ(stat(directory.folder().c_str(), &status), 0);
  CHECK_EQ(status.st_mode & 0777, 0700u);
  // Threads run by now, so no fork: three ranks of this process, over the address book of the
  // files.
  std::vector<std::thread> ranks;
  int sums[3] = {1, 2, 3};
  for (int r = 0; r < 3; ++r)
    ranks.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      CHECK_EQ(ncclCommInitRank(&comm, 3, id, r), ncclSuccess);
      ncclAllReduce(&sums[r], &sums[r], 1, ncclInt32, ncclSum, comm, nullptr);
      CHECK_EQ(flexcclSynchronize(comm), ncclSuccess);
      CHECK_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  for (std::thread& rank : ranks) rank.join();
  for (const int sum : sums) CHECK_EQ(sum, 6);
  CHECK(directory.empty());
}

TEST(absent_rank_ends_at_the_deadline) {
  const Directory directory;
  const ncclUniqueId id = directory.make_id(200);
  const auto start = std::chrono::steady_clock::now();
  CHECK(has(join(id, 0, 2), "rank [1] of [2] did not come to the rendezvous in ["));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  CHECK(directory.empty());
}

TEST(disagreements_have_sentences) {
  const Directory directory;
  const ncclUniqueId id = directory.make_id(3000);
  std::string first_sentence;
  std::thread first([&] { first_sentence = join(id, 0, 3); });
  CHECK(comes([&] { return fs::exists(directory.folder() / "rank-0"); }));
  struct stat status{};
  CHECK_EQ(stat((directory.folder() / "rank-0").c_str(), &status), 0);
  CHECK_EQ(status.st_mode & 0777, 0600u);
  CHECK(has(join(id, 0, 3), "two callers say they are rank [0] of [3]"));
  CHECK(has(join(id, 1, 2), "rank [1] says there are [2] ranks, rank [0] said [3]"));
  first.join();  // it saw the same
  CHECK(has(first_sentence, "rank [0] says there are [3] ranks, rank [1] said [2]"));
}

TEST(garbage_and_wrong_tokens_are_refused) {
  const Directory directory;
  for (const std::size_t bytes : {0, 5, 72, 4000}) {
    const ncclUniqueId id = directory.make_id(2000);
    std::ofstream(directory.folder() / "rank-1") << std::string(bytes, 'x');
    CHECK(has(join(id, 0, 2), "rank-1] is not signed with the key of the job"));
    CHECK_EQ(join(id, 1, 1), std::string("flexccl: rank [1] of [1] cannot be"));
    fs::remove_all(directory.folder());
  }
  const ncclUniqueId id = directory.make_id(2000);
  std::string sentence;
  setenv("FLEXCCL_JOB_TOKEN", "wrong", 1);
  std::thread wrong([&] { sentence = join(id, 1, 2); });
  CHECK(comes([&] { return fs::exists(directory.folder() / "rank-1"); }));
  setenv("FLEXCCL_JOB_TOKEN", "right", 1);
  CHECK(has(join(id, 0, 2), "rank-1] is not signed with the key of the job"));
  unsetenv("FLEXCCL_JOB_TOKEN");
  wrong.join();
  CHECK(has(sentence, "rank-0] is not signed with the key of the job"));
}

TEST(settings) {
  const Directory directory;
  ncclUniqueId id = directory.make_id(1000);
  const auto fails = [&](const std::string& value, const char* sentence) {
    setenv("FLEXCCL_RENDEZVOUS", value.c_str(), 1);
    CHECK(ncclGetUniqueId(&id) != ncclSuccess);
    CHECK(has(ncclGetLastError(nullptr), sentence));
  };
  fails("files", "FLEXCCL_RENDEZVOUS is [files], not tcp or file:DIRECTORY");
  fails("file:", "not tcp or file:DIRECTORY");
  fails("file:/does/not/exist", "opening [/does/not/exist] failed with error [");
  fails("file:/" + std::string(90, 'x'), "is longer than [89] bytes");
  unsetenv("FLEXCCL_RENDEZVOUS");
  id.internal[6] = 9;
  CHECK(has(join(id, 0, 1), "a unique id of kind [9] is damaged"));
}

// A challenge, a message, an answer per rank; nothing that a rank costs depends on the others.
TEST(root_over_tcp_does_a_few_things_per_rank) {
  constexpr int kRanks = 64, kSilent = 16;
  const std::uint64_t before = flexccl::rendezvous::Root::work();
  const auto id = flexccl::make_unique_id(flexccl::RendezvousKind::kTcp, 20000);
  std::vector<flexccl::Fd> silent;
  for (int i = 0; i < kSilent; ++i)
    silent.push_back(flexccl::connect_tcp(id.ipv4, id.port, flexccl::in_ms(5000)));
  std::vector<std::vector<flexccl::Address>> tables(kRanks);
  std::vector<std::thread> ranks;
  for (int r = 0; r < kRanks; ++r)
    ranks.emplace_back([&, r] {
      flexccl::Address self{};
      self.port = static_cast<std::uint16_t>(r);
      tables[static_cast<std::size_t>(r)] =
          flexccl::meet(id, {r, kRanks, self}, flexccl::in_ms(20000));
    });
  for (std::thread& rank : ranks) rank.join();
  for (const auto& table : tables) {
    CHECK_EQ(table.size(), std::size_t{kRanks});
    for (std::size_t r = 0; r < table.size(); ++r) CHECK_EQ(table[r].port, r);
  }
  CHECK(flexccl::rendezvous::Root::work() - before <= 4 * (kRanks + kSilent));
}

namespace {

// What rank r gets; its port tells which of its lives it was.
std::vector<flexccl::Address> meet(const flexccl::UniqueId& id, int rank, int nranks, int life,
                                   std::uint64_t timeout_ms, bool repairs = false) {
  flexccl::Address self{};
  self.port = static_cast<std::uint16_t>(10 * rank + life);
  try {
    return flexccl::meet(id, {rank, nranks, self, repairs}, flexccl::in_ms(timeout_ms));
  } catch (const flexccl::Error&) {
    return {};
  }
}

}  // namespace

// Its connection ends when its time is over, as it would if its process died.
TEST(a_rank_that_died_comes_again) {
  const auto id = flexccl::make_unique_id(flexccl::RendezvousKind::kTcp, 20000);
  CHECK(meet(id, 1, 3, 1, 100).empty());
  CHECK(meet(id, 2, 3, 1, 100).empty());
  std::vector<flexccl::Address> tables[3];
  std::vector<std::thread> ranks;
  const auto start = [&](int rank, int life) {
    ranks.emplace_back(
        [&tables, &id, rank, life] { tables[rank] = meet(id, rank, 3, life, 20000); });
  };
  start(1, 2);  // replaces the one before
  start(0, 1);  // all have come then, but one of them is dead
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  start(2, 2);
  for (std::thread& rank : ranks) rank.join();
  for (const auto& table : tables) {
    CHECK_EQ(table.size(), 3u);
    CHECK_EQ(table[0].port, 1);
    CHECK_EQ(table[1].port, 12);
    CHECK_EQ(table[2].port, 22);
  }
}

TEST(a_root_that_died_is_opened_again) {
  flexccl::UniqueId id = flexccl::make_unique_id(flexccl::RendezvousKind::kTcp, 200);
  CHECK(meet(id, 0, 2, 1, 20000).empty());  // without repairs its end is an error
  std::vector<flexccl::Address> tables[2];
  std::thread first([&] { tables[0] = meet(id, 0, 2, 2, 20000, true); });
  std::thread second([&] { tables[1] = meet(id, 1, 2, 1, 20000, true); });
  first.join();
  second.join();
  for (const auto& table : tables) {
    CHECK_EQ(table.size(), 2u);
    CHECK_EQ(table[0].port, 2);
    CHECK_EQ(table[1].port, 11);
  }
}

CHECK_MAIN
