// The fault-injecting links: each action does what it says, at the frame it names, and what it
// breaks is noticed.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "cluster.h"
#include "transport/fault_rules.h"

namespace {

constexpr flexcclTransport_t kAll[] = {flexcclLoopback, flexcclShm, flexcclTcp};
constexpr std::size_t kCount = 150000;  // three ranks: two slices per chunk

bool has(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "[" << part << "] is not in: " << text;
  return false;
}

struct Run {
  std::vector<ncclResult_t> codes;
  std::string sentences;
  bool right = true;
};

// One all-reduce of three ranks under `rules`.
Run all_reduce(const char* rules, flexcclTransport_t transport) {
  CHECK_EQ(flexcclSetFault(rules), ncclSuccess);
  Cluster cluster(3, transport, 5000);
  std::vector<std::vector<float>> data(3, std::vector<float>(kCount, 1.0f));
  cluster.run([&](int r) {
    float* mine = data[static_cast<std::size_t>(r)].data();
    return ncclAllReduce(mine, mine, kCount, ncclFloat32, ncclSum, cluster.at(r), nullptr);
  });
  Run run;
  for (ncclComm_t comm : cluster.comms) {
    run.codes.push_back(flexcclSynchronize(comm));
    if (run.codes.back() != ncclSuccess)
      run.sentences += ncclGetLastError(comm) + std::string("\n");
  }
  for (const auto& one : data)
    for (const float value : one) run.right &= value == 3.0f;
  flexcclSetFault(nullptr);
  return run;
}

// Where rules note that they have acted, for as long as this object lives.
class Notes {
 public:
  Notes() {
    char name[] = "/tmp/flexccl-notes-XXXXXX";
    CHECK(mkstemp(name) >= 0);
    path_ = name;
    setenv("FLEXCCL_FAULT_NOTES", name, 1);
  }
  ~Notes() {
    unsetenv("FLEXCCL_FAULT_NOTES");
    unlink(path_.c_str());
  }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }

 private:
  std::string path_;
};

bool all_succeed(const Run& run) {
  return run.codes == std::vector<ncclResult_t>(3, ncclSuccess);
}

}  // namespace

// First: a process that forks must not have threads yet.
TEST(kill_ends_the_process_at_its_frame) {
  for (const char* rules : {"kill:rank=1,frame=2", "kill:rank=1,frame=3,bytes=640",
                            "kill:rank=1,frame=4,on=receive", "kill:rank=1,peer=2,frame=1"}) {
    const Notes notes;
    const pid_t child = fork();
    if (child == 0) {
      all_reduce(rules, flexcclShm);
      _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK_EQ(notes.text(), "happened FLEXCCL_FAULT=" + std::string(rules) + "\n");
  }
}

TEST(rules_that_act_are_written_down_once) {
  const char* const acts[] = {"cut:2,rank=1", "drop:2,rank=0", "delay:2,rank=1,ms=20",
                              "corrupt:2,rank=2,bytes=70", "truncate:2,rank=1,bytes=64"};
  for (const char* rule : acts) {
    const Notes notes;
    all_reduce((std::string(rule) + ";kill:100000,rank=0").c_str(), flexcclTcp);
    CHECK_EQ(notes.text(), "happened FLEXCCL_FAULT=" + std::string(rule) + "\n");
  }
}

TEST(no_rule_no_fault) {
  for (const auto transport : kAll)
    for (const char* rules : {"", "cut:rank=7", "cut:rank=1,frame=1000000"}) {
      const Run run = all_reduce(rules, transport);
      CHECK(all_succeed(run) && run.right);
    }
}

TEST(cut_ends_one_rank) {
  for (const auto transport : kAll)
    for (const char* rules : {"cut:rank=1", "cut:rank=1,frame=3", "cut:rank=1,frame=2,bytes=6400",
                              "cut:rank=1,frame=1,on=receive,bytes=64"}) {
      const Run run = all_reduce(rules, transport);
      CHECK_EQ(run.codes[1], ncclSystemError);
      CHECK(has(run.sentences, "rank [1] was cut off on purpose by a fault rule"));
      CHECK_EQ(run.codes[0], ncclRemoteError);
      CHECK_EQ(run.codes[2], ncclRemoteError);
    }
}

TEST(dropped_and_truncated_frames_are_noticed) {
  for (const auto transport : kAll) {
    Run run = all_reduce("drop:rank=0,frame=2", transport);
    CHECK(has(run.sentences, "rank [0]: it sent frame [2] of epoch [0], expected was frame [1]"));
    run = all_reduce("truncate:rank=2,frame=3,bytes=4096", transport);
    CHECK_EQ(run.codes[0], ncclRemoteError);
    CHECK(has(run.sentences, "rank [2]: "));
  }
}

TEST(corrupt_headers_are_noticed_and_delays_harmless) {
  for (const auto transport : kAll) {
    Run run = all_reduce("corrupt:rank=1,frame=2,bytes=41", transport);
    CHECK(has(run.sentences, "rank [1]: it sent garbage instead of a frame"));
    run = all_reduce("corrupt:rank=1,frame=2,bytes=66", transport);  // payload: no rank can know
    CHECK(all_succeed(run) && !run.right);
    const auto start = std::chrono::steady_clock::now();
    run = all_reduce("delay:rank=1,frame=2,ms=80;delay:rank=2,frame=1,ms=40,on=receive", transport);
    CHECK(all_succeed(run) && run.right);
    CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(80));
  }
}

TEST(syntax) {
  for (const char* const text :
       {"drop;kill:9,rank=3,peer=1,bytes=70", "drop;kill,rank=3,peer=1,frame=9,bytes=70",
        "drop;kill:rank=3,peer=1,frame=9,bytes=70"}) {
    const auto same = flexccl::parse_fault_rules(text);
    CHECK_EQ(same.size(), 2U);
    CHECK_EQ(*same[1].rank + *same[1].peer + same[1].frame + same[1].bytes, 83U);
  }
  const auto rules = flexccl::parse_fault_rules("drop;kill:9,rank=3,peer=1,bytes=70");
  CHECK_EQ(rules.size(), 2u);
  CHECK(rules[1].action == flexccl::FaultAction::kKill);
  CHECK(rules[1].rank == 3u && rules[1].peer == 1u && !rules[0].rank);
  CHECK_EQ(rules[1].frame, 9u);
  CHECK_EQ(rules[1].bytes, 70u);
  const std::pair<const char*, const char*> wrong[] = {
      {"explode", "fault rule [explode]: [explode] is none of kill, cut, drop"},
      {"cut:rank", "[rank] is not key=number"},
      {"cut:rank=1x", "[rank=1x] is not key=number"},
      {"cut:frame=0", "[frame=0] is none of rank, peer, frame (from 1)"},
      {"cut:speed=1", "[speed=1] is none of"},
      {"cut;drop:on=receive", "fault rule [drop:on=receive]: [drop] works on=send only"},
      {"cut:on=read", "[on=read] is none of send, receive, repair, init, split, answer"}};
  for (const auto& [text, sentence] : wrong) {
    CHECK_EQ(flexcclSetFault(text), ncclInvalidArgument);
    CHECK(has(ncclGetLastError(nullptr), sentence));
  }
}

CHECK_MAIN
