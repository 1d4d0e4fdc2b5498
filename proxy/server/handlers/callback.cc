#include "server/session/callbacks.h"

#include "ring/completion.h"
#include "server/handlers/handlers.h"
#include "server/handlers/host_copies.h"

namespace pyft::server {

namespace {

// Kept here for ever.
Callbacks* make_callbacks() {
  static std::mutex mutex;
  static auto* const all = std::make_unique<std::list<Callbacks>>().release();
  const std::lock_guard lock(mutex);
  return &all->emplace_back();
}

}  // namespace

Callbacks::Handle::Handle() : all(make_callbacks()) {}

Callbacks::Handle::~Handle() {
  all->end();
}

// After it no function looks at the session any more.
void Callbacks::end() {
  ending_.store(true);
  const std::lock_guard lock(question_mutex_);
}

Callbacks::Callback* Callbacks::add(Session& session, uint64_t id, bool in_graph) {
  const std::lock_guard lock(mutex_);
  callbacks_.push_back({this, &session, id, in_graph, in_graph ? runs_before(session, id) : 0, {}});
  callbacks_.back().self = std::prev(callbacks_.end());
  return &callbacks_.back();
}

void Callbacks::drop(Callback* callback) {
  const std::lock_guard lock(mutex_);
  callbacks_.erase(callback->self);
}

// Of what was captured before the cut from which this server was restored.
uint64_t Callbacks::runs_before(Session& session, uint64_t id) {
  const checkpoint::Recovery& recovery = session.recovery();
  const ring::JournalRecord* const kept =
      session.recovery().journal().find(recovery.restored_seq(), id, ring::JournalKind::kRuns);
  if (!kept) require_kept(session, recovery.restored_seq(), "counted of host functions in graphs");
  return kept ? kept->word : 0;
}

void Callbacks::keep_runs(checkpoint::Journal& journal, uint64_t seq) {
  const std::lock_guard lock(mutex_);
  for (const Callback& callback : callbacks_) {
    if (!callback.in_graph || !callback.runs) continue;
    ring::JournalRecord* const record =
        journal.add(seq, callback.id, ring::JournalKind::kRuns, 0, 0);
    if (record) record->word = callback.runs;
  }
}

void Callbacks::run(void* data) {
  auto* callback = static_cast<Callback*>(data);
  Callbacks& owner = *callback->owner;
  const std::lock_guard lock(owner.question_mutex_);
  if (owner.ending_.load()) return;
  owner.ask(*callback->session, callback->id, ++callback->runs);
  if (!callback->in_graph) owner.drop(callback);
}

// The numbers go on from those of an earlier server.
void Callbacks::ask(Session& session, uint64_t id, uint64_t run) {
  if (session.channel().role() == ring::Role::kAuditor) return;  // it has run, long ago
  ring::ControlPage& page = session.channel().control();
  const uint64_t question = page.callback_asked.load(std::memory_order_seq_cst) + 1;
  page.callback_id.store(id, std::memory_order_seq_cst);
  page.callback_run.store(run, std::memory_order_seq_cst);
  page.callback_asked.store(question, std::memory_order_seq_cst);
  page.callback_asked_futex.fetch_add(1, std::memory_order_seq_cst);
  if (page.callback_asked_waiters.load(std::memory_order_seq_cst))
    ring::futex_wake(page.callback_asked_futex);
  const auto answered = [&] {
    return page.callback_done.load(std::memory_order_seq_cst) == question || ending_.load();
  };
  static_cast<void>(ring::wait_until(page.callback_done_futex, &page.callback_done_waiters,
                                     session.liveness(), answered));
}

Status do_cudaLaunchHostFunc(Session& session, const EntryHeader& header,
                             const cmd::cudaLaunchHostFunc& c, Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  const backend::Table& api = session.backend();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (api.cuStreamIsCapturing) api.cuStreamIsCapturing(stream, &status);
  const bool in_graph = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  Callbacks& all = *session.state<Callbacks::Handle>().all;
  Callbacks::Callback* callback = all.add(session, c.callback, in_graph);
  const int code = api.cuLaunchHostFunc(stream, Callbacks::run, callback);
  if (code != 0) all.drop(callback);
  // While a fence is open the device is asked whether it has failed: then callbacks are told.
  if (code == 0 && !in_graph) {
    const Status open = session.publish_on_stream(stream, ring::kDeviceWord, 0);
    if (!open.ok()) return open;
  }
  const uint64_t values[] = {in_graph};
  return finish(session, header, "cuLaunchHostFunc", Domain::kCuda, code, values, 1);
}

}  // namespace pyft::server
