#include "server/server.h"

#include <utility>

#include "api/call_ids.h"
#include "backend/inject.h"
#include "backend/repair.h"
#include "pyft/log.h"
#include "pyft/settings.h"
#include "server/device.h"
#include "server/handlers/handlers.h"
#include "server/handlers/live_objects.h"
#include "server/host_node.h"
#include "server/recovery/peer_import.h"
#include "server/recovery/reads.h"
#include "server/recovery/snapshot_options.h"
#include "server/session/kept.h"

namespace pyft::server {

namespace {

constexpr uint64_t kLockedJournalBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxJournalMb = 64 << 10;

// An order of the agent to fail; what is wrong with it is for the server's log.
bool inject(const AgentMessage& message) {
  if (!message.as<msg::Inject>()) return false;
  const std::string faults(reinterpret_cast<const char*>(message.payload.data()),
                           message.payload.size());
  const std::string problem = backend::inject(settings::backend_library(), faults);
  if (!problem.empty())
    PYFT_LOG(kServer, kWarning, "fault [%s]: %s", faults.c_str(), problem.c_str());
  return true;
}

// Noted in the page, which outlives this process and the agent.
void note_faults(ring::ControlPage& page) {
  static_assert(sizeof page.fault_notes == 256);
  backend::note_faults(settings::backend_library(),
                       reinterpret_cast<unsigned char*>(page.fault_notes));
}

// All ranks replay, none is replaced alone.
bool replays_all() {
  return settings::replay() == settings::Replay::kAll;
}

// Of another server's rank, instead of serving one.
bool audits() {
  return settings::audit() != 0;
}

Kept::Role kept_role() {
  if (audits()) return Kept::Role::kAnswers;
  return settings::dmr() == settings::Dmr::kAudit ? Kept::Role::kKeeps : Kept::Role::kNone;
}

// A soft GPU calls functions in its streams at no cost; a real one writes words.
std::unique_ptr<StreamWords> stream_words(const Attachment& attachment,
                                          const backend::Backend& backend, int ordinal) {
  if (backend.is_soft()) return nullptr;
  std::string why;
  auto made = StreamWords::make(backend.table, ordinal, &why);
  if (!made) say(attachment, "completion takes host functions, which are slow: " + why);
  return made;
}

// For collectives of the vendor's library; pyft's own say themselves when they wait.
std::unique_ptr<CollectiveMarks> collective_marks(const Attachment& attachment,
                                                  const backend::Table& table, int ordinal) {
  if (backend::collectives_are_flexccl()) return nullptr;
  std::string why;
  auto* const words = writable_words(table, ordinal, CollectiveMarks::kBytes, &why);
  if (words) return std::make_unique<CollectiveMarks>(table, words);
  say(attachment, "kernels that hang are found by NCCL's own deadline only: " + why);
  return nullptr;
}

// Or this thread would stand in each copy to the host until the stream has come to it.
void lock_bounce(const Attachment& attachment, const backend::Backend& backend) {
  ring::Channel& channel = *attachment.channel;
  const auto call = backend.table.cuMemHostRegister_v2;
  if (backend.is_soft() || !channel.bounce() || !call) return;
  const int code = call(channel.bounce(), channel.bounce_bytes(), CU_MEMHOSTREGISTER_PORTABLE);
  if (code)
    say(attachment, "copies to the host hold up other commands: [cuMemHostRegister_v2] of [" +
                        std::to_string(channel.bounce_bytes()) + "] bytes fails with code [" +
                        std::to_string(code) + "]");
}

void stay_near(const Attachment& attachment, const backend::Backend& backend) {
  if (backend.is_soft() || !settings::near_gpu().value_or(true)) return;
  KernelProcessors processors;
  const uint32_t device = attachment.channel->device();
  const std::string done =
      stay_near(backend.table, ordinal_of(device), processors, settings::host_root());
  PYFT_LOG(kServer, kDebug, "device [%u]: %s", device, done.c_str());
}

// The store of the channel, laid out or checked; nullptr without one, or with a sentence. Before
// the session, which has its journal in there. A device that reads the journal where it lies has
// all of it page-locked at each start: it is smaller then.
std::unique_ptr<checkpoint::Store> open_store(ring::Channel& channel, bool locks_pages,
                                              std::string* error) {
  error->clear();
  if (!channel.store()) return nullptr;
  if (channel.role() == ring::Role::kAuditor)
    return checkpoint::Store::look_at(channel.store(), channel.store_bytes(), channel.store_fd(),
                                      error);
  checkpoint::Store::Shape shape;
  if (locks_pages) shape.journal_bytes = kLockedJournalBytes;
  if (const uint64_t mb = settings::journal_mb()) {
    if (mb > kMaxJournalMb) {
      *error = "PYFT_JOURNAL_MB is [" + std::to_string(mb) + "], the most is [" +
               std::to_string(kMaxJournalMb) + "]";
      return nullptr;
    }
    shape.journal_bytes = mb << 20;
  }
  auto store = checkpoint::Store::open(channel.store(), channel.store_bytes(), channel.store_fd(),
                                       shape, error);
  const auto line = settings::line();
  if (store && line) *error = store->promote_unfinished(*line);
  return store;
}

// By which an entry is called in sentences.
const char* name_of(uint16_t call) {
  if (call == static_cast<uint16_t>(ring::Mark::kCut)) return "cut";
  return call < ring::kFirstCall ? "mark" : call_name(call);
}

// What is about to be dispatched: a deferred snapshot may have to be made before.
void prepare_for(const ring::EntryView& next, Session& session,
                 checkpoint::Snapshotter& snapshotter) {
  if (snapshotter.is_deferred() && !only_reads(session, next)) snapshotter.run_deferred();
  snapshotter.next_entry(next.header);
  if (takes_memory_away(next)) snapshotter.before_unmapping();
}

}  // namespace

Server::ReadySession::ReadySession(Server& server)
    : Session(*server.attachment_.channel, &server.backend_.table, server.liveness_,
              *server.device_calls_) {
  recovery().set_reports(&server.reports_);
  recovery().set_policy(checkpoint::divergence_policy());
  recovery().set_call_names(name_of);
  set_ordinals(ordinals());
}

Server::Server(const Attachment& attachment, const backend::Backend& backend, CUcontext context,
               std::unique_ptr<checkpoint::Store> store)
    : attachment_(attachment),
      backend_(backend),
      context_(context),
      ordinal_(ordinal_of(attachment.channel->device())),
      liveness_(attachment.agent.get()),
      store_(std::move(store)),
      words_(stream_words(attachment, backend, ordinal_)),
      marks_(words_ ? collective_marks(attachment, backend.table, ordinal_) : nullptr),
      device_calls_(device_calls(backend, ordinal_, context, words_.get(), marks_.get())),
      reports_(attachment.agent.get()),
      session_(*this),
      watch_(words_.get(), *device_calls_),
      heartbeat_(session_),
      repaired_(*attachment.channel, session_.recovery()),
      rebuilt_(session_.recovery().repairs() && replays_all() && !audits()
                   ? std::optional<RebuiltCommunicators>(std::in_place, *attachment.channel,
                                                         session_.recovery(), backend.table,
                                                         *device_calls_)
                   : std::nullopt),
      lone_(*attachment.channel),
      exports_(backend.table, device_window(attachment.channel->device()), *device_calls_),
      agent_(attachment.agent.get(), orders_),
      requests_(agent_),
      mismatches_(session_, agent_, !rebuilt_),
      cut_messages_(agent_, rebuilt_ ? &*rebuilt_ : nullptr, decided_) {}

std::unique_ptr<Server> Server::make(const Attachment& attachment, const backend::Backend& backend,
                                     CUcontext context, Standby& standby, std::string* error) {
  stay_near(attachment, backend);
  std::unique_ptr<checkpoint::Store> store =
      open_store(*attachment.channel, !backend.is_soft(), error);
  if (store && error->empty()) *error = store->set_digests(digest_kind(backend.extras));
  if (!error->empty()) return nullptr;
  if (audits()) replay_all(attachment.channel->control());
  lock_bounce(attachment, backend);
  note_faults(attachment.channel->control());
  const std::string fate = shared_fate(backend.table, ordinal_of(attachment.channel->device()));
  if (!backend.is_soft() && !fate.empty()) say(attachment, fate);
  std::unique_ptr<Server> made(new Server(attachment, backend, context, std::move(store)));
  made->tell_communicators();
  made->session_.state<Kept>().begin(kept_role(), backend.extras.view);
  const uint64_t start = made->prepare(standby);
  auto checker = dmr::make_checker(made->session_, backend.extras.view, made->mismatches_);
  made->loop_.emplace(made->session_, checker ? dmr::perform_checked : perform, start);
  if (checker) dmr::install(made->session_, std::move(checker));
  if (audits()) {
    *error = made->audit();
    if (!error->empty()) return nullptr;
  } else if (made->session_.recovery().repairs()) {
    made->take_snapshots();
  }
  return made;
}

void Server::print_last_entries() const {
  for (const ring::EntryHeader& header : loop_->last_entries()) {
    const char* name = name_of(header.call);
    PYFT_LOG(kServer, kWarning, "  entry [%llu] call [%u] %s thread [%u] bytes [%u]",
             static_cast<unsigned long long>(header.seq), header.call, name ? name : "?",
             header.thread, header.size);
  }
}

bool Server::Orders::take(const AgentMessage& message) {
  Server& server = server_;
  return (server.rebuilt_ && server.rebuilt_->order(message)) || server.repaired_.order(message) ||
         inject(message) || server.spilling_.spill(message, &server.agent_) ||
         server.exports_.lend(message) ||
         decide(*server.attachment_.channel, message, &server.decided_);
}

void Server::tell_communicators() {
  if (audits()) return static_cast<void>(session_.recovery().communicators = &lone_);
  repaired_.start(&agent_);
  session_.recovery().communicators = &repaired_;
  if (!rebuilt_) return;
  rebuilt_->start(&agent_);
  session_.recovery().communicators = &*rebuilt_;
}

// The device gets the state that the client's last server has left behind; where replay starts.
uint64_t Server::prepare(Standby& standby) {
  if (!session_.recovery().repairs()) return session_.channel().control().consumed.load();
  device_.emplace(session_, backend_, store_->digest_key(), snapshot_options().jit,
                  standby.digests(), standby.modules());
  device_->set_others(&requests_);
  if (!backend_.is_soft()) session_.set_room_maker(&*device_);
  auto peers = rebuilt_ || audits()
                   ? nullptr
                   : make_peer_import(session_, requests_, device_->memory().hashes());
  others_.emplace(session_, requests_, store_->digest_key(), std::move(peers));
  SessionObjects objects(session_, perform);
  const uint64_t position = session_.recovery().restore(
      {*store_, device_->memory(), device_->state(), device_->placement(), objects, *others_});
  if (const int code = protect_mappings(session_))
    session_.recovery().fail(ring::FaultKind::kUnrecoverable, code,
                             "memory that may only be read is not protected again");
  return position;
}

void Server::take_snapshots() {
  checkpoint::SnapshotOptions options = snapshot_options();
  options.agreed = &decided_.agreed;
  options.committed = &decided_.committed;
  options.aborted = &decided_.aborted;
  if (rebuilt_) options.defers = options.jit = false;  // others wait for this cut
  const checkpoint::Log log{session_.channel(), session_.liveness(), session_.recovery()};
  snapshotter_.emplace(log, *store_, device_->parts(), cut_messages_,
                       *session_.recovery().communicators, options);
  spilling_.set(&*snapshotter_);
  session_.recovery().set_snapshots(&*snapshotter_);
  loop_->set_hooks(&between_entries_);
}

std::string Server::audit() {
  if (!device_) return "an audit needs a store";
  auditor_.emplace(session_, *store_, device_->parts(), agent_, settings::audit());
  loop_->set_hooks(&*auditor_);
  return auditor_->lacks();
}

void Server::BetweenEntries::before(const ring::EntryView& next) {
  dmr::before_entry(server_.session_, next);
  prepare_for(next, server_.session_, *server_.snapshotter_);
}

void Server::BetweenEntries::turn() {
  server_.snapshotter_->poll();
}

void Server::BetweenEntries::idle() {
  server_.snapshotter_->run_deferred();
  dmr::while_idle(server_.session_);
}

void Server::BetweenEntries::cut(const ring::EntryView& entry, const ring::CutMark& cut) {
  server_.snapshotter_->take(entry.header, cut, entry.payload, entry.position + entry.header.size);
}

void Server::BetweenEntries::gate() {
  server_.snapshotter_->gate();
}

int Server::BetweenEntries::device() {
  checkpoint::DeviceState& state = server_.device_->state();
  return state.capturing() ? 0 : state.idle();
}

}  // namespace pyft::server
