// Communicators: made, ended and watched.
#include "server/collectives/nccl.h"

#include <chrono>
#include <future>

#include "server/session/nccl_config.h"

namespace pyft::server {
namespace {

constexpr int kNoLibrary = ncclSystemError;
constexpr size_t kMaxIds = 4096, kMaxRanks = 1 << 20, kMaxSentence = 1024;

struct CallResult {
  int code;
  std::string sentence;  // of the failure
};

template <class CallIt>
CallResult outcome_of(Session& session, CallIt call) {
  CallResult outcome{int{call()}, {}};
  const auto query = session.backend().ncclGetLastError;
  if (outcome.code && query) outcome.sentence = query(nullptr);  // this thread's
  outcome.sentence.resize(std::min(outcome.sentence.size(), kMaxSentence));
  return outcome;
}

// Runs a call that waits for other ranks. They may wait for work of this device, which this thread
// executes where the device does not work by itself.
template <class CallIt>
CallResult wait_for_ranks(Session& session, CallIt call) {
  if (!session.works()) return outcome_of(session, call);
  auto result = std::async(std::launch::async, [&] {
    session.enter_device();  // a communicator belongs to the current device of the thread that
                             // makes it
    return outcome_of(session, call);
  });
  while (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    if (!session.work()) result.wait_for(std::chrono::microseconds(200));
  return result.get();
}

Status answer(Session& session, const EntryHeader& header, const CallResult& outcome,
              std::span<const uint64_t> values = {}) {
  if (outcome.code) session.check_device(session.device_status(), "a call of NCCL");
  return session.reply(header, outcome.code, values, std::as_bytes(std::span(outcome.sentence)));
}

Communicators& communicators(Session& session) {
  Communicators& all = session.state<Communicators>();
  if (session.has_sweep()) return all;
  all.session = &session;
  session.set_sweep(&all);
  return all;
}

// Binds what a creation made and tells the client rank and size.
Status created(Session& session, const EntryHeader& header, uint64_t handle, uint64_t error_base,
               ncclComm_t comm, const CallResult& outcome) {
  checkpoint::CommunicatorRecovery* const comm_recovery = session.recovery().communicators;
  if (outcome.code && comm_recovery) comm_recovery->lost_peer(outcome.code, outcome.sentence);
  if (outcome.code || !comm) return answer(session, header, outcome);
  const Handle made{handle};
  if (made.kind() != HandleKind::kCommunicator || !session.table(made.kind()).bind(made, comm))
    return bad_handle(handle);
  int rank = 0, size = 0;
  session.backend().ncclCommUserRank(comm, &rank);
  session.backend().ncclCommCount(comm, &size);
  if (size > 1) session.shares_communicator();
  if (comm_recovery) comm_recovery->made(comm, handle, header.seq, rank, size);
  Communicators& all = communicators(session);
  {
    const std::scoped_lock lock(all.mutex);
    all.live.push_back({comm, made.index(), error_base});
  }
  const uint64_t values[] = {static_cast<uint64_t>(rank), static_cast<uint64_t>(size)};
  return answer(session, header, outcome, values);
}

// A communicator of before the committed snapshot: the server has taken its place in it already.
ncclComm_t made_before(Session& session, const EntryHeader& header, uint64_t handle) {
  checkpoint::Recovery& recovery = session.recovery();
  if (!recovery.communicators || !recovery.restores_objects()) return nullptr;
  return static_cast<ncclComm_t>(recovery.communicators->made_before(handle, header.seq));
}

// What was made and ended between the last two committed snapshots is left out.
bool is_over(Session& session) {
  const checkpoint::CommunicatorRecovery* const comm_recovery = session.recovery().communicators;
  return comm_recovery && comm_recovery->makes_all_again() && session.recovery().restores_objects();
}

// Others would wait for this rank for ever: their communicator has a dead member.
void refuse_repetition(Session& session, int ranks) {
  const checkpoint::CommunicatorRecovery* const comm_recovery = session.recovery().communicators;
  if (ranks > 1 && comm_recovery && !comm_recovery->can_replace() &&
      session.recovery().restores_objects())
    session.recovery().fail(ring::FaultKind::kUnrecoverable, 0,
                            "NCCL cannot replace a rank: PYFT_COLLECTIVES=flexccl can");
}

// `patient`: others may still need what is kept here for them.
template <class Function>
Status end(Session& session, const EntryHeader& header, uint64_t handle, Function function,
           bool patient) {
  ncclComm_t comm;
  if (!resolve_comm(session, handle, &comm))
    return is_over(session) ? Status::good() : bad_handle(handle);
  if (!function) return missing(session, header, call_name(header.call), kNoLibrary);
  session.table(HandleKind::kCommunicator).unbind(Handle{handle});
  Communicators& all = communicators(session);
  {
    const std::scoped_lock lock(all.mutex);
    std::erase_if(all.live, [comm](const Communicators::Live& one) { return one.comm == comm; });
  }
  checkpoint::CommunicatorRecovery* const comm_recovery = session.recovery().communicators;
  return answer(session, header, wait_for_ranks(session, [=, seq = header.seq] {
                  if (comm_recovery && patient) comm_recovery->let_go(handle);
                  if (comm_recovery) comm_recovery->ended(handle, seq);
                  return function(comm);
                }));
}

// Takes the settings of a new communicator off the end of what came with the call, which has
// `before` bytes of its own. False: there are others.
bool take_settings(Body* payload, size_t before, Body* settings, NcclConfig* config) {
  if (payload->size() != before && payload->size() != before + sizeof(NcclSettings)) return false;
  *settings = payload->subspan(before);
  *payload = payload->first(before);
  return config->read(*settings);
}

}  // namespace

// The stream of the operation that has failed stands until the program aborts its communicator.
void Communicators::sweep() {
  const auto query = session->backend().ncclCommGetAsyncError;
  const std::scoped_lock lock(mutex);
  for (const Live& one : live) {
    ncclResult_t error = ncclSuccess;
    if (query(one.comm, &error) != ncclSuccess || error == ncclSuccess || error == ncclInProgress)
      continue;
    // Found here before the dispatch thread has come to it: the device's error, not this one's.
    session->check_device(session->device_status(), "a communicator");
    if (checkpoint::CommunicatorRecovery* const comm_recovery = session->recovery().communicators) {
      comm_recovery->lost_peer(error, session->backend().ncclGetLastError(one.comm));
      comm_recovery->failed(one.comm);
    }
    if (session->recovery().repairs() && session->recovery().replaying())
      session->recovery().fail(ring::FaultKind::kUnrecoverable, error,
                               std::string("a collective cannot be repeated: ") +
                                   session->backend().ncclGetLastError(one.comm));
    session->publish(one.word, one.error_base + static_cast<uint64_t>(error));
  }
}

void fail_communicator(Session& session, uint64_t handle, int code) {
  ncclComm_t comm;
  if (!resolve_comm(session, handle, &comm)) return;
  Communicators& all = communicators(session);
  const std::scoped_lock lock(all.mutex);
  for (const Communicators::Live& one : all.live)
    if (one.comm == comm) session.publish(one.word, one.error_base + static_cast<uint64_t>(code));
}

Status do_ncclGetUniqueId(Session& session, const EntryHeader& header, const cmd::ncclGetUniqueId&,
                          Body, Body) {
  ncclUniqueId id{};
  const auto function = session.backend().ncclGetUniqueId;
  if (!function) return missing(session, header, "ncclGetUniqueId", kNoLibrary);
  const CallResult outcome = outcome_of(session, [&] { return function(&id); });
  if (outcome.code) return answer(session, header, outcome);
  if (checkpoint::CommunicatorRecovery* const comm_recovery = session.recovery().communicators)
    comm_recovery->minted(std::as_bytes(std::span(&id, 1)));
  return session.reply(header, 0, {}, std::as_bytes(std::span(&id, 1)));
}

Status do_ncclCommInitRankScalable(Session& session, const EntryHeader& header,
                                   const cmd::ncclCommInitRankScalable& c, Body, Body payload) {
  // Too few bytes for settings are too few for ids as well.
  const bool configured =
      payload.size() % sizeof(ncclUniqueId) && payload.size() > sizeof(NcclSettings);
  const size_t count =
      (payload.size() - (configured ? sizeof(NcclSettings) : 0)) / sizeof(ncclUniqueId);
  Body settings;
  NcclConfig config;
  if (!count || count > kMaxIds ||
      !take_settings(&payload, count * sizeof(ncclUniqueId), &settings, &config))
    return Status::broken("a communicator of [" + std::to_string(payload.size()) +
                          "] bytes of unique ids");
  const auto function = session.backend().ncclCommInitRankScalable;
  if (!function) return missing(session, header, "ncclCommInitRankScalable", kNoLibrary);
  ncclComm_t comm = made_before(session, header, c.comm);
  if (comm) return created(session, header, c.comm, c.error_base, comm, {});
  if (is_over(session)) return Status::good();
  refuse_repetition(session, c.ranks);
  std::vector<std::byte> id(payload.begin(), payload.end());
  if (checkpoint::CommunicatorRecovery* const comm_recovery = session.recovery().communicators) {
    id = comm_recovery->id_for(c.comm, c.rank, payload);
    comm_recovery->configures(c.comm, 0, settings);
  }
  std::vector<ncclUniqueId> ids(id.size() / sizeof(ncclUniqueId));
  std::memcpy(ids.data(), id.data(), ids.size() * sizeof(ncclUniqueId));
  const CallResult outcome = wait_for_ranks(session, [&] {
    return function(&comm, c.ranks, c.rank, static_cast<int>(ids.size()), ids.data(), config.get());
  });
  return created(session, header, c.comm, c.error_base, comm, outcome);
}

Status do_ncclCommSplit(Session& session, const EntryHeader& header, const cmd::ncclCommSplit& c,
                        Body, Body payload) {
  Body settings;
  NcclConfig config;
  if (!take_settings(&payload, 0, &settings, &config))
    return Status::broken("a division with [" + std::to_string(payload.size()) +
                          "] bytes of settings");
  ncclComm_t parent, comm = made_before(session, header, c.newcomm);
  if (comm) return created(session, header, c.newcomm, c.error_base, comm, {});
  if (is_over(session)) return Status::good();
  if (!resolve_comm(session, c.comm, &parent)) return bad_handle(c.comm);
  const auto function = session.backend().ncclCommSplit;
  if (!function) return missing(session, header, "ncclCommSplit", kNoLibrary);
  if (checkpoint::CommunicatorRecovery* const comm_recovery = session.recovery().communicators) {
    comm_recovery->divides(c.newcomm, c.comm, static_cast<uint32_t>(c.color));
    comm_recovery->configures(c.newcomm, c.comm, settings);
    comm_recovery->collective(c.comm);
  }
  const CallResult outcome = wait_for_ranks(
      session, [&] { return function(parent, c.color, c.key, &comm, config.get()); });
  return created(session, header, c.newcomm, c.error_base, comm, outcome);
}

Status do_ncclCommShrink(Session& session, const EntryHeader& header, const cmd::ncclCommShrink& c,
                         Body, Body payload) {
  ncclComm_t parent, comm = made_before(session, header, c.newcomm);
  if (comm) return created(session, header, c.newcomm, c.error_base, comm, {});
  if (is_over(session)) return Status::good();
  if (!resolve_comm(session, c.comm, &parent)) return bad_handle(c.comm);
  const auto function = session.backend().ncclCommShrink;
  if (!function) return missing(session, header, "ncclCommShrink", kNoLibrary);
  Body settings;
  NcclConfig config;
  if (c.excluded < 1 || static_cast<size_t>(c.excluded) > kMaxRanks ||
      !take_settings(&payload, static_cast<size_t>(c.excluded) * sizeof(int), &settings, &config))
    return Status::broken("a shrink without [" + std::to_string(c.excluded) + "] ranks");
  std::vector<int> excluded(static_cast<size_t>(c.excluded));
  std::memcpy(excluded.data(), payload.data(), payload.size());
  if (checkpoint::CommunicatorRecovery* const comm_recovery = session.recovery().communicators) {
    comm_recovery->divides(c.newcomm, c.comm,
                           uint64_t{1} << 32 | static_cast<uint32_t>(c.excluded));
    comm_recovery->configures(c.newcomm, c.comm, settings);
  }
  const CallResult outcome = wait_for_ranks(session, [&] {
    return function(parent, excluded.data(), c.excluded, &comm, config.get(), c.flags);
  });
  return created(session, header, c.newcomm, c.error_base, comm, outcome);
}

Status do_ncclCommFinalize(Session& session, const EntryHeader& header,
                           const cmd::ncclCommFinalize& c, Body, Body) {
  ncclComm_t comm;
  if (!resolve_comm(session, c.comm, &comm)) return bad_handle(c.comm);
  const auto function = session.backend().ncclCommFinalize;
  if (!function) return missing(session, header, "ncclCommFinalize", kNoLibrary);
  return answer(session, header, wait_for_ranks(session, [=] { return function(comm); }));
}

Status do_ncclCommDestroy(Session& session, const EntryHeader& header,
                          const cmd::ncclCommDestroy& c, Body, Body) {
  return end(session, header, c.comm, session.backend().ncclCommDestroy, true);
}

Status do_ncclCommAbort(Session& session, const EntryHeader& header, const cmd::ncclCommAbort& c,
                        Body, Body) {
  return end(session, header, c.comm, session.backend().ncclCommAbort, false);
}

Status do_ncclRedOpCreatePreMulSum(Session& session, const EntryHeader& header,
                                   const cmd::ncclRedOpCreatePreMulSum& c, Body, Body) {
  ncclComm_t comm;
  if (!resolve_comm(session, c.comm, &comm)) return bad_handle(c.comm);
  uint64_t immediate = c.scalar;
  const auto function = session.backend().ncclRedOpCreatePreMulSum;
  if (!function) return missing(session, header, "ncclRedOpCreatePreMulSum", kNoLibrary);
  const bool host = c.residence == ncclScalarHostImmediate;
  if (!host && !session.in_device_window(c.scalar, sizeof(uint64_t)))
    return Status::broken("a scalar at [" + std::to_string(c.scalar) + "] is no device memory");
  void* scalar = host ? &immediate : reinterpret_cast<void*>(c.scalar);
  ncclRedOp_t op = ncclSum;
  const CallResult outcome = outcome_of(session, [&] {
    return function(&op, scalar, static_cast<ncclDataType_t>(c.datatype),
                    static_cast<ncclScalarResidence_t>(c.residence), comm);
  });
  const uint64_t values[] = {static_cast<uint64_t>(op)};
  return answer(session, header, outcome, values);
}

Status do_ncclRedOpDestroy(Session& session, const EntryHeader& header,
                           const cmd::ncclRedOpDestroy& c, Body, Body) {
  ncclComm_t comm;
  if (!resolve_comm(session, c.comm, &comm)) return bad_handle(c.comm);
  const auto function = session.backend().ncclRedOpDestroy;
  if (!function) return missing(session, header, "ncclRedOpDestroy", kNoLibrary);
  return answer(session, header, outcome_of(session, [&] {
                  return function(static_cast<ncclRedOp_t>(c.op), comm);
                }));
}

// The sentence of a communicator's own error.
Status do_ncclGetLastError(Session& session, const EntryHeader& header,
                           const cmd::ncclGetLastError& c, Body, Body) {
  ncclComm_t comm;
  if (!resolve_comm(session, c.comm, &comm)) return bad_handle(c.comm);
  const auto function = session.backend().ncclGetLastError;
  if (!function) return missing(session, header, "ncclGetLastError", kNoLibrary);
  std::string sentence = function(comm);
  sentence.resize(std::min(sentence.size(), kMaxSentence));
  return session.reply(header, 0, {}, std::as_bytes(std::span(sentence)));
}

}  // namespace pyft::server
