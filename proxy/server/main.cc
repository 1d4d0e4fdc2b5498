// pyft-server: owns one GPU (or soft GPU) for one client process. Started by the agent only.
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "api/call_ids.h"
#include "backend/backend.h"
#include "backend/collective_failure.h"
#include "backend/inject.h"
#include "backend/repair.h"
#include "pyft/fault.h"
#include "server/attach.h"
#include "server/device.h"
#include "server/handlers/handlers.h"
#include "server/loop.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/capture.h"
#include "server/recovery/communicators.h"
#include "server/recovery/cut_orders.h"
#include "server/recovery/device_memory.h"
#include "server/recovery/lending_memory.h"
#include "server/recovery/other_stores.h"
#include "server/recovery/peer_memory.h"
#include "server/recovery/reads.h"
#include "server/recovery/ready_modules.h"
#include "server/recovery/scratch.h"
#include "server/recovery/shared_communicators.h"
#include "server/recovery/takeover.h"
#include "server/self_test.h"
#include "server/standby.h"
#include "server/watchdog.h"

namespace pyft::server {
namespace {

enum ExitCode {
  kGood = 0,
  kAttachFailed = 70,
  kBackendFailed = 71,
  kProtocolBroken = 72,
  kStoreBroken = 73,
  kGpuUnsound = kSelfTestExit
};

// LD_PRELOAD and the client's variables are cleared by the agent; this also holds for a server
// started by hand, which would otherwise load the shim as its driver.
void leave_client_environment() {
  unsetenv("LD_PRELOAD");
  unsetenv("PYFT_AGENT");
}

int fail(const Attachment& attachment, ExitCode code, const std::string& sentence) {
  const long long device = attachment.channel ? int64_t{attachment.channel->device()} : -1;
  std::fprintf(stderr, "pyft-server: device [%lld], client [%u]: %s\n", device,
               attachment.client_pid, sentence.c_str());
  return code;
}

// The agent reads the words and takes another GPU.
int unsound(const Attachment& attachment, const std::string& why) {
  const std::string sentence = "the GPU fails its self-test: " + why;
  ring::ControlPage& page = attachment.channel->control();
  std::memset(page.fault_text, 0, sizeof page.fault_text);
  std::strncpy(page.fault_text, sentence.c_str(), sizeof page.fault_text - 1);
  send_last_words(attachment.agent.get(), ring::FaultKind::kNone, 0, 0, sentence);
  return fail(attachment, kGpuUnsound, sentence);
}

int ordinal_of(uint32_t device) {
  const std::vector<int> all = ordinals();
  return device < all.size() ? all[device] : static_cast<int>(device);
}

const char* name_of(uint16_t call) {
  if (call == static_cast<uint16_t>(ring::Mark::kCut)) return "cut";
  return call < ring::kFirstCall ? "mark" : call_name(call);
}

void print_last_entries(const Loop& loop) {
  for (const ring::EntryHeader& header : loop.last_entries()) {
    const char* name = name_of(header.call);
    std::fprintf(stderr, "pyft-server:   entry [%llu] call [%u] %s thread [%u] bytes [%u]\n",
                 static_cast<unsigned long long>(header.seq), header.call, name ? name : "?",
                 header.thread, header.size);
  }
}

// An order of the agent to fail; what is wrong with it is for the server's log.
bool inject(const AgentMessage& message) {
  if (message.kind != ring::MessageKind::kInject) return false;
  const std::string faults(reinterpret_cast<const char*>(message.payload.data()),
                           message.payload.size());
  const std::string problem = backend::inject(std::getenv("PYFT_BACKEND_LIBRARY"), faults);
  if (!problem.empty())
    std::fprintf(stderr, "pyft-server: fault [%s]: %s\n", faults.c_str(), problem.c_str());
  return true;
}

// Noted in the page, which outlives this process and the agent.
void note_faults(ring::ControlPage& page) {
  static_assert(sizeof page.fault_notes == 64);
  backend::note_faults(std::getenv("PYFT_BACKEND_LIBRARY"),
                       reinterpret_cast<unsigned char*>(page.fault_notes));
}

// What was asked for by the environment or an order and has not come to pass. A server that is
// killed says nothing: then the agent does.
void say_missed_faults(const ring::ControlPage& page) {
  std::string text = backend::missed_faults(std::getenv("PYFT_BACKEND_LIBRARY"));
  if (const char* const place = std::getenv("PYFT_KILL_AT"))
    text += "pyft-server: the fault [PYFT_KILL_AT=" + std::string(place) +
            "] did not happen: there were [" + std::to_string(page.kill_cuts.load()) + "] cuts, [" +
            std::to_string(page.kill_entries.load()) + "] entries after the last, [" +
            std::to_string(page.kill_step_entries.load()) + "] after the one asked for\n";
  text += fault::missed({"server.", "cut.", "store.", "lend."});
  std::fputs(text.c_str(), stderr);
}

// All ranks replay, nobody is replaced alone.
bool replays_all() {
  const char* const which = std::getenv("PYFT_REPLAY");
  return which && !std::strcmp(which, "all");
}

// A soft GPU calls functions in its streams at no cost; a real one writes words.
std::unique_ptr<StreamWords> stream_words(const Attachment& attachment, const backend::Table& table,
                                          const backend::Extras& extras, int ordinal) {
  if (extras.publish) return nullptr;
  std::string why;
  auto made = StreamWords::make(table, ordinal, &why);
  if (!made) fail(attachment, kGood, "completion takes host functions, which are slow: " + why);
  return made;
}

// For collectives of the vendor's library; pyft's own say themselves when they wait.
std::unique_ptr<CollectiveMarks> collective_marks(const Attachment& attachment,
                                                  const backend::Table& table, int ordinal) {
  if (backend::collectives_are_flexccl()) return nullptr;
  std::string why;
  auto* const words = writable_words(table, ordinal, CollectiveMarks::kBytes, &why);
  if (words) return std::make_unique<CollectiveMarks>(table, words);
  fail(attachment, kGood, "kernels that hang are found by NCCL's own deadline only: " + why);
  return nullptr;
}

// Or this thread would stand in each copy to the host until the stream has come to it.
void lock_bounce(const Attachment& attachment, const backend::Table& table,
                 const backend::Extras& extras) {
  ring::Channel& channel = *attachment.channel;
  if (extras.publish || !channel.bounce() || !table.cuMemHostRegister_v2) return;
  const int code = table.cuMemHostRegister_v2(channel.bounce(), channel.bounce_bytes(),
                                              CU_MEMHOSTREGISTER_PORTABLE);
  if (code)
    fail(attachment, kGood,
         "copies to the host hold up other commands: [cuMemHostRegister_v2] of [" +
             std::to_string(channel.bounce_bytes()) + "] bytes fails with code [" +
             std::to_string(code) + "]");
}

int serve(const Attachment& attachment, const backend::Table& table, const backend::Extras& extras,
          CUcontext context, Standby& standby) {
  const ServerLiveness liveness(attachment.agent.get());
  std::string error;
  const std::unique_ptr<Store> store = open_store(*attachment.channel, !extras.publish, &error);
  if (store && error.empty()) error = store->set_digests(digest_kind(extras));
  if (!error.empty()) return fail(attachment, kStoreBroken, error);
  const int ordinal = ordinal_of(attachment.channel->device());
  const auto words = stream_words(attachment, table, extras, ordinal);
  const auto marks = words ? collective_marks(attachment, table, ordinal) : nullptr;
  lock_bounce(attachment, table, extras);
  note_faults(attachment.channel->control());
  if (const std::string why = shared_fate(table, ordinal); !extras.publish && !why.empty())
    fail(attachment, kGood, why);
  Session session(*attachment.channel, &table, liveness,
                  device_calls(table, extras, ordinal, words.get(), marks.get()));
  session.recovery().set_agent(attachment.agent.get());
  session.set_ordinals(ordinals());
  session.set_ask_for_failures(backend::on_collective_failure);
  session.set_enter_device([&] { enter_thread(table, context); });
  const StreamWords::Watch watch(words.get(), [&] { session.enter_device(); });
  const Heartbeat heartbeat(session, [&] { session.enter_device(); });
  LastingCommunicators communicators(*attachment.channel, session.recovery());
  std::optional<SharedCommunicators> shared;
  if (session.recovery().repairs() && replays_all())
    shared.emplace(*attachment.channel, session.recovery(), table);
  Decided decided;
  Spilling spilling;
  LendingMemory lending(table, device_window(attachment.channel->device()),
                        [&] { session.enter_device(); });
  AgentLink agent(attachment.agent.get(), [&](const AgentMessage& message) {
    return (shared && shared->order(message)) || communicators.order(message) || inject(message) ||
           spilling.spill(message, &agent) || lending.lend(message) ||
           decide(*attachment.channel, message, &decided);
  });
  communicators.start(&agent);
  session.recovery().communicators = &communicators;
  if (shared) {
    shared->start(&agent);
    session.recovery().communicators = &*shared;
  }
  session.recovery().set_policy(divergence_policy());
  session.recovery().set_call_names(name_of);
  RecoveryCalls calls;
  std::optional<Capture> capture;
  if (session.recovery().repairs()) {
    calls = recovery_calls(session, extras);
    hash_on_device(session, store->digest_key(), &calls, standby.digests());
    if (!extras.publish)
      session.set_make_room(
          [&agent, asked = uint64_t{0}]() mutable { return ask_for_room(agent, ++asked); });
    if (capture_options().jit) copy_on_device(session, &calls);
    if (!shared)
      use_peers(
          session, [&agent](uint64_t attempt) { return ask_for_peer(agent, attempt); }, &calls);
    if (ReadyModules* const modules = standby.modules())
      use_ready_modules(session, modules, &calls);
  }
  OtherStores others(
      store ? store->digest_key() : DigestKey(0),
      [&agent](uint64_t owner, uint64_t attempt) { return ask_for_store(agent, owner, attempt); });
  calls.elsewhere = [&others](const ring::ManifestBlock& block, std::string* problem) {
    return others.content(block, problem);
  };
  Loop loop(session, perform, prepare_recovery(session, store.get(), calls, perform));
  loop.set_on_live([&] { agent.send(ring::MessageKind::kLive); });
  if (session.recovery().repairs()) {
    loop.set_idle([&] { return calls.capturing() ? 0 : calls.idle(); });
    calls.at_cut = [&](uint64_t cut) {
      session.state<ScratchMemory>().release(table);
      if (!shared) communicators.at_cut(cut, store->has_point() ? store->point().manifest.cut : 0);
    };
    if (!shared) calls.crowded = [&] { return communicators.crowded(); };
    if (!shared) calls.delivered = [&](uint64_t cut) { return communicators.delivered(cut); };
    calls.published = [&](uint64_t cut, uint64_t seq) {
      shared ? shared->captured(seq) : communicators.captured(cut, seq);
    };
    if (shared) calls.pace_of_others = [&decided] { return decided.pace.load(); };
    tell_of_cuts(agent, shared ? &*shared : nullptr, &calls);
    CaptureOptions options = capture_options();
    options.settled = &decided.settled;
    options.committed = &decided.committed;
    options.dropped = &decided.dropped;
    if (shared) options.late = Late::kNever, options.puts_off = false;  // what is held is whole
    if (shared) options.jit = false;
    capture.emplace(session, *store, calls, options);
    spilling.set(&*capture);
    session.recovery().set_make_room([&] { return capture->make_room(); });
    loop.set_on_turn([&] { capture->go_on(); });
    session.recovery().set_hold_back([&] { capture->hold_back(); });
    loop.set_on_cut([&](const ring::EntryView& cut) {
      return capture->take(cut.header, cut.body, cut.payload, cut.position + cut.header.size);
    });
    loop.set_on_gate([&](const ring::EntryView&) { return capture->gate(); });
    loop.set_before([&](const ring::EntryView& next) {
      if (capture->is_put_off() && !only_reads(session, next)) capture->make_up();
      capture->next_entry(next.header);
      if (takes_memory_away(next)) capture->before_unmapping();
    });
    loop.set_on_idle([&] { capture->make_up(); });
  }
  const Loop::End end = loop.run();
  spilling.set(nullptr);
  if (end != Loop::End::kProtocolError) return kGood;
  fail(attachment, kProtocolBroken, loop.error());
  print_last_entries(loop);
  return kProtocolBroken;
}

// A server must not outlive its keeper for even a moment. False: the keeper is dead already.
bool die_with_keeper() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const char* keeper = std::getenv("PYFT_KEEPER_PID");
  const bool alive = !keeper || std::atoi(keeper) == getppid();
  unsetenv("PYFT_KEEPER_PID");
  return alive;
}

int run() {
  leave_client_environment();
  if (!die_with_keeper()) return kAttachFailed;
  std::signal(SIGINT, SIG_IGN);  // Ctrl-C is for the program; the agent ends servers
  pthread_setname_np(pthread_self(), "pyft-server");
  Attachment attachment;
  std::string error;
  backend::Table table;
  backend::Extras extras;
  // Before the client is known: a server that stands by has this behind it.
  if (!backend::load(std::getenv("PYFT_BACKEND_LIBRARY"), &table, &extras, &error))
    return fail(attachment, kBackendFailed, error);
  Standby standby(table, extras);
  standby.get_ready();
  const auto wait = [&](int agent) { standby.wait(agent); };
  if (!attach(&attachment, &error, wait)) return fail(attachment, kAttachFailed, error);
  attachment.channel->control().server_pid = static_cast<uint32_t>(getpid());
  CUcontext context = nullptr;
  const uint32_t device = attachment.channel->device();
  error = standby.enter(ordinal_of(device), &context);
  if (error.empty()) error = reserve_window(table, device);
  if (!error.empty()) return fail(attachment, kBackendFailed, error);
  if (std::getenv("PYFT_SELF_TEST"))
    if (error = self_test(table, ordinal_of(device)); !error.empty())
      return unsound(attachment, error);
  const int code = serve(attachment, table, extras, context, standby);
  say_missed_faults(attachment.channel->control());
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
