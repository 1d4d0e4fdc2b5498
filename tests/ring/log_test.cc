// PYFT_LOG: what is said, by which process, and that arguments of what is not said cost nothing.
#include "pyft/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "check.h"

namespace {

namespace log = pyft::log;

// What stderr gets while this lives.
class Stderr {
 public:
  Stderr() : before_(dup(2)) {
    if (pipe2(ends_, O_NONBLOCK | O_CLOEXEC) == 0) dup2(ends_[1], 2);
  }
  ~Stderr() {
    dup2(before_, 2);
    for (const int fd : {ends_[0], ends_[1], before_}) close(fd);
  }
  std::string text() {
    std::string all(4096, '\0');
    const ssize_t got = read(ends_[0], all.data(), all.size());
    all.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return all;
  }

 private:
  int before_, ends_[2] = {-1, -1};
};

std::string said(const char* setting) {
  CHECK_EQ(log::configure(setting), "");
  Stderr out;
  PYFT_LOG(kClient, kWarning, "a [%d]", 1);
  PYFT_LOG(kServer, kInfo, "b");
  PYFT_LOG(kRecovery, kDebug, "c");
  PYFT_LOG(kRecovery, kTrace, "d");
  return out.text();
}

std::string label(const char* what) {
  return "[" + std::string(what) + " pid " + std::to_string(getpid()) + "] ";
}

TEST(without_a_setting_users_read_bare_sentences) {
  CHECK_EQ(said(""), "pyft: a [1]\npyft-server: b\n");
}

TEST(a_level_holds_for_all_modules_and_lines_are_labelled) {
  unsetenv("RANK");
  CHECK_EQ(said("warning"), "pyft: " + label("warning client") + "a [1]\n");
  CHECK_EQ(said("debug"), "pyft: " + label("warning client") +
                              "a [1]\npyft-server: " + label("info server") +
                              "b\npyft-server: " + label("debug recovery") + "c\n");
}

TEST(a_module_may_have_a_level_of_its_own) {
  unsetenv("RANK");
  CHECK_EQ(said("error,recovery=trace,plan=debug"),
           "pyft-server: " + label("debug recovery") +
               "c\npyft-server: " + label("trace recovery") + "d\n");
}

TEST(the_rank_is_the_launchers_or_that_of_the_page) {
  setenv("RANK", "3", 1);
  CHECK_EQ(said("warning"), "pyft: " + label("warning client rank 3") + "a [1]\n");
  static std::atomic<uint32_t> rank{5};
  log::follow_rank(&rank);
  CHECK_EQ(said("warning"), "pyft: " + label("warning client rank 5") + "a [1]\n");
  log::follow_rank(nullptr);
  unsetenv("RANK");
}

TEST(an_error_of_a_device_is_news_once) {
  CHECK(log::is_news("device [0]: kernel [k]"));  // no page yet: all is
  CHECK(log::is_news("device [0]: kernel [k]"));
  static std::atomic<uint32_t> said{0};
  log::follow_said(&said);
  CHECK(log::is_news("device [0]: kernel [k] in block [0,0,0], thread [1,0,0]"));
  CHECK(!log::is_news("device [0]: kernel [k] in block [3,0,0], thread [2,0,0]"));
  CHECK(log::is_news("device [0]: kernel [other] in block [3,0,0], thread [2,0,0]"));
  CHECK(log::is_news("device [0]: kernel [k] in block [3,0,0], thread [2,0,0]"));
  log::follow_said(nullptr);
}

TEST(arguments_of_what_is_not_said_are_not_looked_at) {
  CHECK_EQ(log::configure("info"), "");
  int looks = 0;
  PYFT_LOG(kRing, kDebug, "[%d]", ++looks);
  CHECK_EQ(looks, 0);
}

TEST(what_is_not_understood_is_refused_whole) {
  CHECK_EQ(log::configure("trace"), "");
  for (const char* const bad : {"loud", "recovery=loud", "attic=debug", "recovery=", "=debug", ",",
                                "debug,,info", "recovery"}) {
    const std::string why = log::configure(bad);
    CHECK(why.starts_with("PYFT_LOG is [" + std::string(bad) + "], not LEVEL or MODULE=LEVEL"));
    CHECK(
        why.ends_with("levels: error, warning, info, debug, trace; modules: client, ring, "
                      "server, snapshot, recovery, softgpu, flexccl, agent, plan"));
  }
  CHECK(log::says(log::Module::kRing, log::Level::kTrace));
}

}  // namespace

CHECK_MAIN
