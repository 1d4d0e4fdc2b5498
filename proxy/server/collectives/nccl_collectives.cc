// Collectives, sends and receives: the library puts them into the stream and this thread goes on.
#include "server/collectives/nccl.h"

#include <iterator>
#include <type_traits>

#include "pyft/log.h"
#include "server/session/captured_collectives.h"
#include "server/session/kept.h"
#include "server/session/marked.h"

namespace pyft::server {
namespace {

static_assert(std::size(kNcclElementBytes) == ncclNumTypes);
constexpr uint64_t kMaxCount = uint64_t{1} << 56;  // for all ranks: bytes fit 64 bits

// What all of these commands carry, resolved and checked.
struct Operation {
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  ncclComm_t comm;
  cudaStream_t stream;
  bool alone;  // it waits for no other rank
  Exchanged exchanged;
};

// How many times `count` elements each buffer has at most, and whether only the root has it.
struct Factors {
  bool send_all = false, receive_all = false;
  bool root_sends = false, root_receives = false;
};

bool touchable(Session& session, uint64_t address, uint64_t bytes) {
  return address == 0 || session.in_device_window(address, bytes) ||
         session.in_pinned(address, bytes);
}

// What an auditor asks of it; nothing where nothing is audited.
template <class Command>
Exchanged exchanged(Session& session, const Command& c, Factors factors, uint64_t bytes,
                    uint64_t ranks, ncclComm_t comm) {
  const Kept& kept = session.state<Kept>();
  if (!kept.keeps() && !kept.answers()) return {};
  int rank = 0;
  session.backend().ncclCommUserRank(comm, &rank);
  Exchanged out{c.sendbuff, factors.send_all ? bytes * ranks : bytes, c.recvbuff,
                factors.receive_all ? bytes * ranks : bytes};
  if (!c.sendbuff || (factors.root_sends && rank != c.root)) out.send_bytes = 0;
  if (!c.recvbuff || (factors.root_receives && rank != c.root)) out.receive_bytes = 0;
  return out;
}

template <class Command>
Status resolve(Session& session, const Command& c, Factors factors, Operation* out) {
  ncclComm_t comm;
  CUstream stream;
  if (!resolve_comm(session, c.comm, &comm)) return bad_handle(c.comm);
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  int size = 1;
  session.backend().ncclCommCount(comm, &size);
  const int32_t type = c.datatype, root = c.root, op = c.op;
  const uint64_t count = c.count;
  const auto ranks = static_cast<uint64_t>(size);
  if (type < 0 || type >= ncclNumTypes || root < 0 || root >= size || op < 0 ||
      count > kMaxCount / ranks)
    return Status::broken("a collective with data type [" + std::to_string(type) + "], root [" +
                          std::to_string(root) + "], operation [" + std::to_string(op) +
                          "], count [" + std::to_string(count) + "]");
  const uint64_t bytes = count * kNcclElementBytes[type];
  if (!touchable(session, c.sendbuff, factors.send_all ? bytes * ranks : bytes) ||
      !touchable(session, c.recvbuff, factors.receive_all ? bytes * ranks : bytes))
    return Status::broken("a collective touches memory outside the device's window");
  *out = {reinterpret_cast<const void*>(c.sendbuff),
          reinterpret_cast<void*>(c.recvbuff),
          count,
          static_cast<ncclDataType_t>(type),
          static_cast<ncclRedOp_t>(op),
          root,
          comm,
          stream,
          size == 1,
          exchanged(session, c, factors, bytes, ranks, comm)};
  return Status::good();
}

// Before it may fail: the other ranks count it as well.
template <class Command>
void count(Session& session, const Command& c, CUstream stream) {
  using What = CapturedCollectives::One::What;
  CapturedCollectives::One one{c.comm};
  if constexpr (std::is_same_v<Command, cmd::ncclSend> || std::is_same_v<Command, cmd::ncclRecv>)
    one = {c.comm, std::is_same_v<Command, cmd::ncclSend> ? What::kSend : What::kReceive, c.root};
  session.state<CapturedCollectives>().put(session, stream, one);
}

// In a group nothing reaches the stream before the group ends.
template <class Run>
int put(Session& session, const Operation& operation, Run run) {
  if (operation.alone || !session.marks()) return run(operation);
  if (!session.state<MarkedCalls>().depth)
    return marked(session, operation.stream, [&] { return run(operation); });
  note_in_group(session, operation.stream);
  return run(operation);
}

// Its result, when its stream has come to its end.
void keep(Session& session, const Operation& operation, ring::JournalRecord* record) {
  if (!record) return;
  MarkedCalls& group = session.state<MarkedCalls>();
  const auto after = [&session, operation, record] {
    session.state<Kept>().after(session, operation.stream, operation.exchanged, record);
  };
  if (group.depth)
    group.at_end.emplace_back(after);
  else
    after();
}

// A stream of a group counts as waiting from when it gets there, although NCCL starts when the
// communicator's other streams in the group have come as well: if one of those hangs this is
// missed. Which rank waits for which within a group is NCCL's to know, and a rank that waits must
// never look stuck.
int end_group(Session& session, MarkedCalls& group) {
  const auto function = session.backend().ncclGroupEnd;
  if (group.depth && --group.depth) return function();
  for (const CUstream stream : group.streams)
    if (enter_marked(session, stream)) group.entered.push_back(stream);
  const int code = function();  // what fails may have put some of it into streams
  for (const CUstream stream : group.entered) session.marks()->leave(stream);
  for (const auto& after : group.at_end) after();
  group.at_end.clear();
  group.streams.clear();
  group.entered.clear();
  return code;
}

// What the library says of its last failure on this thread or of this communicator.
const char* last_error(Session& session, ncclComm_t comm) {
  const auto query = session.backend().ncclGetLastError;
  return query ? query(comm) : "no sentence";
}

// Runs one command. A refusal becomes the communicator's error: the caller has gone on. So does a
// function that the library lacks, being an older one.
template <class Command, class Function, class Run>
Status collective(Session& session, const EntryHeader& header, const Command& c, const char* name,
                  Factors factors, Function function, Run run) {
  session.recovery().commit_output();
  Operation operation{};
  if (Status status = resolve(session, c, factors, &operation); !status.ok()) return status;
  if (!function) {
    PYFT_LOG(kServer, kWarning, "the backend has no [%s]", name);
    fail_communicator(session, c.comm, ncclInvalidUsage);
    return session.reply(header, ncclInvalidUsage);
  }
  count(session, c, operation.stream);
  Kept& kept = session.state<Kept>();
  if (kept.answers()) {
    kept.answer(session, header, operation.stream, operation.exchanged);
    return Status::good();
  }
  const auto record = kept.keeps()
                          ? kept.before(session, header.seq, operation.stream, operation.exchanged)
                          : nullptr;
  const int code =
      put(session, operation, [&](const Operation& o) { return int{run(o, function)}; });
  if (code == ncclSuccess) return keep(session, operation, record), Status::good();
  // A stream that takes nothing because the device has failed is no error of the communicator.
  session.check_device(session.device_status(), name);
  PYFT_LOG(kServer, kWarning, "entry [%llu]: [%s] fails with code [%d]: %s",
           static_cast<unsigned long long>(header.seq), name, code,
           last_error(session, operation.comm));
  fail_communicator(session, c.comm, code);
  return Status::good();
}

}  // namespace

Status do_ncclGroupStart(Session& session, const EntryHeader& header, const cmd::ncclGroupStart&,
                         Body, Body) {
  const auto function = session.backend().ncclGroupStart;
  if (!function) return missing(session, header, "ncclGroupStart", ncclSystemError);
  if (function() == ncclSuccess) ++session.state<MarkedCalls>().depth;
  return Status::good();
}

// An operation that a group refuses is its communicator's error, which the library keeps.
Status do_ncclGroupEnd(Session& session, const EntryHeader& header, const cmd::ncclGroupEnd&, Body,
                       Body) {
  if (!session.backend().ncclGroupEnd)
    return missing(session, header, "ncclGroupEnd", ncclSystemError);
  if (const int code = end_group(session, session.state<MarkedCalls>())) {
    session.check_device(session.device_status(), "ncclGroupEnd");
    PYFT_LOG(kServer, kWarning, "entry [%llu]: [ncclGroupEnd] fails with code [%d]: %s",
             static_cast<unsigned long long>(header.seq), code, last_error(session, nullptr));
  }
  return Status::good();
}

Status do_ncclAllReduce(Session& session, const EntryHeader& header, const cmd::ncclAllReduce& c,
                        Body, Body) {
  return collective(session, header, c, "ncclAllReduce", {}, session.backend().ncclAllReduce,
                    [](const Operation& o, auto function) {
                      return function(o.send, o.receive, o.count, o.type, o.op, o.comm, o.stream);
                    });
}

Status do_ncclReduce(Session& session, const EntryHeader& header, const cmd::ncclReduce& c, Body,
                     Body) {
  return collective(session, header, c, "ncclReduce", {.root_receives = true},
                    session.backend().ncclReduce, [](const Operation& o, auto function) {
                      return function(o.send, o.receive, o.count, o.type, o.op, o.root, o.comm,
                                      o.stream);
                    });
}

Status do_ncclReduceScatter(Session& session, const EntryHeader& header,
                            const cmd::ncclReduceScatter& c, Body, Body) {
  return collective(session, header, c, "ncclReduceScatter", {.send_all = true},
                    session.backend().ncclReduceScatter, [](const Operation& o, auto function) {
                      return function(o.send, o.receive, o.count, o.type, o.op, o.comm, o.stream);
                    });
}

Status do_ncclAllGather(Session& session, const EntryHeader& header, const cmd::ncclAllGather& c,
                        Body, Body) {
  return collective(session, header, c, "ncclAllGather", {.receive_all = true},
                    session.backend().ncclAllGather, [](const Operation& o, auto function) {
                      return function(o.send, o.receive, o.count, o.type, o.comm, o.stream);
                    });
}

Status do_ncclAlltoAll(Session& session, const EntryHeader& header, const cmd::ncclAlltoAll& c,
                       Body, Body) {
  return collective(session, header, c, "ncclAlltoAll", {.send_all = true, .receive_all = true},
                    session.backend().ncclAlltoAll, [](const Operation& o, auto function) {
                      return function(o.send, o.receive, o.count, o.type, o.comm, o.stream);
                    });
}

Status do_ncclBroadcast(Session& session, const EntryHeader& header, const cmd::ncclBroadcast& c,
                        Body, Body) {
  return collective(session, header, c, "ncclBroadcast", {.root_sends = true},
                    session.backend().ncclBroadcast, [](const Operation& o, auto function) {
                      return function(o.send, o.receive, o.count, o.type, o.root, o.comm, o.stream);
                    });
}

Status do_ncclGather(Session& session, const EntryHeader& header, const cmd::ncclGather& c, Body,
                     Body) {
  return collective(session, header, c, "ncclGather", {.receive_all = true, .root_receives = true},
                    session.backend().ncclGather, [](const Operation& o, auto function) {
                      return function(o.send, o.receive, o.count, o.type, o.root, o.comm, o.stream);
                    });
}

Status do_ncclScatter(Session& session, const EntryHeader& header, const cmd::ncclScatter& c, Body,
                      Body) {
  return collective(session, header, c, "ncclScatter", {.send_all = true, .root_sends = true},
                    session.backend().ncclScatter, [](const Operation& o, auto function) {
                      return function(o.send, o.receive, o.count, o.type, o.root, o.comm, o.stream);
                    });
}

Status do_ncclSend(Session& session, const EntryHeader& header, const cmd::ncclSend& c, Body,
                   Body) {
  return collective(session, header, c, "ncclSend", {}, session.backend().ncclSend,
                    [](const Operation& o, auto function) {
                      return function(o.send, o.count, o.type, o.root, o.comm, o.stream);
                    });
}

Status do_ncclRecv(Session& session, const EntryHeader& header, const cmd::ncclRecv& c, Body,
                   Body) {
  return collective(session, header, c, "ncclRecv", {}, session.backend().ncclRecv,
                    [](const Operation& o, auto function) {
                      return function(o.receive, o.count, o.type, o.root, o.comm, o.stream);
                    });
}

}  // namespace pyft::server
