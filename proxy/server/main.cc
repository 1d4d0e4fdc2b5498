// pyft-server: owns one GPU (or soft GPU) for one client process. Started by the agent only.
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/inject.h"
#include "pyft/fault.h"
#include "pyft/log.h"
#include "pyft/settings.h"
#include "server/attach.h"
#include "server/device.h"
#include "server/kill_places.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/lone_communicators.h"
#include "server/self_test.h"
#include "server/server.h"
#include "server/standby.h"

namespace pyft::server {
namespace {

// LD_PRELOAD and the client's variables are cleared by the agent; this also holds for a server
// started by hand, which would otherwise load the shim as its driver.
void leave_client_environment() {
  unsetenv("LD_PRELOAD");
  unsetenv("PYFT_AGENT");
}

int fail(const Attachment& attachment, int code, const std::string& sentence) {
  say(attachment, sentence);
  return code;
}

// The agent reads the words and takes another GPU.
int unsound(const Attachment& attachment, const std::string& why) {
  const std::string sentence = "the GPU fails its self-test: " + why;
  ring::ControlPage& page = attachment.channel->control();
  std::memset(page.fault_text, 0, sizeof page.fault_text);
  std::strncpy(page.fault_text, sentence.c_str(), sizeof page.fault_text - 1);
  send_last_words(attachment.agent.get(), ring::FaultKind::kNone, 0, 0, sentence);
  return fail(attachment, ring::kSelfTestExit, sentence);
}

// What was asked for by the environment or an order and has not come to pass here. Of places with a
// note the agent tells: another server, of the same process or not, may have come to them.
void say_missed_faults(const ring::ControlPage& page, const std::vector<KillPlace>& places) {
  std::string text = backend::missed_faults(settings::backend_library());
  if (!std::ranges::all_of(places, [](const KillPlace& place) { return place.note.has_value(); }))
    text += "pyft-server: the fault [PYFT_KILL_AT=" + std::string(settings::kill_at()) +
            "] did not happen: there were [" + std::to_string(page.kill_cuts.load()) + "] cuts, [" +
            std::to_string(page.kill_entries.load()) + "] entries after the last, [" +
            std::to_string(page.kill_step_entries.load()) + "] after the one asked for\n";
  text +=
      fault::missed({"server.", "cut.", "store.", "export.", "communicator."}, page.rank.load());
  std::fputs(text.c_str(), stderr);
}

int serve(const Attachment& attachment, const backend::Backend& backend, CUcontext context,
          Standby& standby) {
  std::string error;
  const auto server = Server::make(attachment, backend, context, standby, &error);
  if (!server) return fail(attachment, ring::kStoreExit, error);
  if (server->run() != Loop::End::kProtocolError) return 0;
  fail(attachment, ring::kProtocolExit, server->error());
  server->print_last_entries();
  return ring::kProtocolExit;
}

// A server must not outlive its supervisor for even a moment. False: the supervisor is dead
// already.
bool die_with_supervisor() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto supervisor = settings::supervisor_pid();
  const bool alive = !supervisor || *supervisor == static_cast<uint64_t>(getppid());
  unsetenv("PYFT_SUPERVISOR_PID");
  return alive;
}

// What is said names the rank, and repeats nothing of the server before: both stand in the control
// page. Exit handlers may speak too.
struct LogPage {
  explicit LogPage(ring::Channel& channel) {
    log::follow_rank(&channel.control().rank);
    log::follow_said(&channel.control().said_error);
  }
  ~LogPage() {
    log::follow_rank(nullptr);
    log::follow_said(nullptr);
  }
};

int run() {
  leave_client_environment();
  if (!die_with_supervisor()) return ring::kAttachExit;
  std::signal(SIGINT, SIG_IGN);  // Ctrl-C is for the program; the agent ends servers
  pthread_setname_np(pthread_self(), "pyft-server");
  Attachment attachment;
  std::vector<KillPlace> places;
  std::string error = read_kill_places(settings::kill_at(), &places);
  if (!error.empty()) return fail(attachment, ring::kAttachExit, error);
  backend::Backend backend;
  // Before the client is known: a server that stands by has this behind it.
  if (!backend::load(settings::backend_library(), &backend, &error))
    return fail(attachment, ring::kBackendExit, error);
  Standby standby(backend);
  standby.get_ready();
  if (!connect_agent(&attachment, &error)) return fail(attachment, ring::kAttachExit, error);
  standby.wait(attachment.agent.get());
  if (!receive_channel(&attachment, &error)) return fail(attachment, ring::kAttachExit, error);
  if (settings::audit()) backend.table = with_lone_communicators(backend.table);
  attachment.channel->control().server_pid = static_cast<uint32_t>(getpid());
  const LogPage page(*attachment.channel);  // gone before the page is unmapped
  PYFT_LOG(kServer, kDebug, "attached: device [%u], client [%u]", attachment.channel->device(),
           attachment.client_pid);
  CUcontext context = nullptr;
  const uint32_t device = attachment.channel->device();
  error = standby.enter(device, &context);
  if (!error.empty()) return fail(attachment, ring::kBackendExit, error);
  if (settings::self_test())
    if (error = self_test(backend.table, ordinal_of(device)); !error.empty())
      return unsound(attachment, error);
  const int code = serve(attachment, backend, context, standby);
  say_missed_faults(attachment.channel->control(), places);
  std::fflush(nullptr);
  // Not exit(): the backend's threads may still run commands, and destructors of its statics
  // would pull the ground from under them.
  _exit(code);
}

}  // namespace
}  // namespace pyft::server

int main() {
  return pyft::server::run();
}
