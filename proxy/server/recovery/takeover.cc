#include "server/recovery/takeover.h"

#include <cstdlib>

#include "backend/backend.h"

namespace pyft::server {

namespace {

constexpr uint64_t kLockedJournalBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxJournalMb = 64 << 10;

// A device that fails meanwhile is a reason of its own, and one that another attempt can cure.
[[noreturn]] void give_up(Session& session, const std::string& why) {
  session.check_device(session.device_status(), "a restore");
  session.recovery().fail(ring::FaultKind::kUnrecoverable, 0, why);
}

// The backend must read the journal when a stream reaches a copy, not when it is asked to copy.
void register_journal(Session& session) {
  const Journal& journal = session.recovery().journal();
  if (!journal.exists()) return;
  const auto call = session.backend().cuMemHostRegister_v2;
  if (call && call(journal.area(), journal.area_bytes(), CU_MEMHOSTREGISTER_PORTABLE) == 0) return;
  give_up(session, "the backend does not register the journal");
}

}  // namespace

std::unique_ptr<Store> open_store(ring::Channel& channel, bool locks_pages, std::string* error) {
  error->clear();
  if (!channel.store()) return nullptr;
  Store::Shape shape;
  if (locks_pages) shape.journal_bytes = kLockedJournalBytes;
  const char* const wanted = std::getenv("PYFT_JOURNAL_MB");
  if (const uint64_t mb = wanted ? std::strtoull(wanted, nullptr, 10) : 0) {
    if (mb > kMaxJournalMb) {
      *error = "PYFT_JOURNAL_MB is [" + std::to_string(mb) + "], the most is [" +
               std::to_string(kMaxJournalMb) + "]";
      return nullptr;
    }
    shape.journal_bytes = mb << 20;
  }
  auto store =
      Store::open(channel.store(), channel.store_bytes(), channel.store_fd(), shape, error);
  const char* const line = std::getenv("PYFT_LINE");
  if (store && line) *error = store->promote_unfinished(std::strtoull(line, nullptr, 10));
  return store;
}

uint64_t prepare_recovery(Session& session, Store* store, const RecoveryCalls& calls,
                          const DispatchEntry& dispatch) {
  Recovery& recovery = session.recovery();
  if (!recovery.repairs()) return session.channel().control().consumed.load();
  recovery.enter(ring::Phase::kStarting);
  const std::string damage = recovery.journal().adopt();
  if (!damage.empty()) give_up(session, damage);
  register_journal(session);
  if (recovery.replaces()) recovery.set_replaying(true);
  recovery.enter(ring::Phase::kCommunicators);
  if (recovery.communicators && recovery.replaces())
    if (const std::string problem = recovery.communicators->rejoin(); !problem.empty())
      give_up(session, problem);
  recovery.enter(ring::Phase::kObjects);
  const Restored objects = restore_objects(session, *store, calls, dispatch);
  if (!objects.error.empty()) give_up(session, objects.error);
  recovery.enter(ring::Phase::kRestore);
  const std::string wrong = restore_contents(session, *store, calls);
  if (!wrong.empty()) give_up(session, wrong);
  recovery.enter(ring::Phase::kReplay);
  return objects.position;
}

}  // namespace pyft::server
