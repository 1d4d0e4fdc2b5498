// A stand-in for libnccl.so.2: moves no data, writes down every call, fails and dawdles on request.
// Built against the vendor's nccl.h, so that its functions are NCCL's.
//
// FAKE_NCCL_VERSION is what ncclGetVersion says. Communicators and ids are numbered from 1.
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

struct ncclComm {
  int number, nranks, rank, polls;
};

// The two calls of NCCL 2.29 that the header of 2.28 lacks.
extern "C" ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id);
extern "C" ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank,
                                     ncclComm_t* newcomm, ncclConfig_t* config);
static_assert(std::is_same_v<decltype(&ncclCommRevoke), ncclResult_t (*)(ncclComm_t, int)>);

namespace {

std::mutex mutex;
std::string calls;
std::map<std::string, ncclResult_t> failures;  // of the next call of a name
std::map<ncclComm_t, std::unique_ptr<ncclComm>> alive;
int polls_until_ready = 0;
int ids = 0, made = 0;

template <class... Parts>
ncclResult_t note(const char* name, const Parts&... parts) {
  std::ostringstream line;
  line << name;
  ((line << ' ' << parts), ...);
  const std::scoped_lock lock(mutex);
  calls += line.str() + "\n";
  const auto failure = failures.extract(name);
  return failure ? failure.mapped() : ncclSuccess;
}

std::string name_of(ncclComm_t comm) {
  if (!comm) return "none";
  const std::scoped_lock lock(mutex);
  if (!alive.contains(comm)) return "dead";
  std::ostringstream name;
  name << '#' << comm->number;
  return name.str();
}

int number_of(const ncclUniqueId* id) {
  int number = 0;
  if (id) std::memcpy(&number, id, sizeof number);
  return number;
}

ncclResult_t make(ncclComm_t* out, int nranks, int rank) {
  const std::scoped_lock lock(mutex);
  auto comm = std::make_unique<ncclComm>(ncclComm{++made, nranks, rank, polls_until_ready});
  *out = comm.get();
  alive[*out] = std::move(comm);
  return polls_until_ready ? ncclInProgress : ncclSuccess;
}

ncclResult_t end(const char* name, ncclComm_t comm) {
  const ncclResult_t code = note(name, name_of(comm));
  const std::scoped_lock lock(mutex);
  alive.erase(comm);
  return code;
}

}  // namespace

// What the test says and asks.
extern "C" {
const char* fake_nccl_take_calls() {
  static std::string taken;
  const std::scoped_lock lock(mutex);
  taken = std::exchange(calls, {});
  return taken.c_str();
}
void fake_nccl_fail(const char* name, int code) {
  const std::scoped_lock lock(mutex);
  failures[name] = static_cast<ncclResult_t>(code);
}
// Communicators made from now on are ready after so many questions; negative: never.
void fake_nccl_dawdle(int polls) {
  const std::scoped_lock lock(mutex);
  polls_until_ready = polls;
}
int fake_nccl_alive() {
  const std::scoped_lock lock(mutex);
  return static_cast<int>(alive.size());
}
}

ncclResult_t ncclGetVersion(int* version) {
  const char* text = std::getenv("FAKE_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22809;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "fake error";
}
const char* ncclGetLastError(ncclComm_t) {
  return "the fake was told to fail";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  const int number = ++ids;
  std::memcpy(id, &number, sizeof number);
  return note("ncclGetUniqueId", "id", number);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const ncclResult_t code = note("ncclCommInitRankConfig", nranks, "rank", rank, "id",
                                 number_of(&id), "blocking", config->blocking);
  return code == ncclSuccess ? make(comm, nranks, rank) : code;
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n, const int*) {
  const ncclResult_t code = note("ncclCommInitAll", n);
  for (int i = 0; i < n; ++i) make(&comms[i], n, i);
  return code;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t*) {
  const ncclResult_t code = note("ncclCommSplit", name_of(comm), color, key);
  if (code != ncclSuccess || color < 0) return code;
  make(out, comm->nranks, comm->rank);
  return ncclSuccess;
}
ncclResult_t ncclCommShrink(ncclComm_t comm, int* list, int n, ncclComm_t* out, ncclConfig_t*,
                            int flags) {
  const ncclResult_t code =
      note("ncclCommShrink", name_of(comm), "without", list[0], "of", n, "flags", flags);
  if (code != ncclSuccess) return code;
  return make(out, comm->nranks - n, comm->rank - (comm->rank > list[0]));
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  return note("ncclCommRevoke", name_of(comm), flags);
}
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  const int number = ++ids;
  std::memcpy(id, &number, sizeof number);
  return note("ncclCommGetUniqueId", name_of(comm), "id", number);
}
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank,
                          ncclComm_t* out, ncclConfig_t*) {
  const ncclResult_t code =
      note("ncclCommGrow", name_of(comm), "to", nranks, "rank", rank, "id", number_of(id));
  return code == ncclSuccess ? make(out, nranks, comm ? comm->rank : rank) : code;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return note("ncclCommFinalize", name_of(comm));
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return end("ncclCommDestroy", comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return end("ncclCommAbort", comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::scoped_lock lock(mutex);
  if (comm->polls > 0) --comm->polls;
  *state = comm->polls ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->nranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return note("ncclCommRegister", name_of(comm));
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  return note("ncclCommDeregister", name_of(comm));
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t,
                                      ncclScalarResidence_t, ncclComm_t comm) {
  float value;
  std::memcpy(&value, scalar, sizeof value);
  *op = static_cast<ncclRedOp_t>(100 + comm->number);
  return note("ncclRedOpCreatePreMulSum", name_of(comm), value);
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return note("ncclRedOpDestroy", name_of(comm), int(op));
}
ncclResult_t ncclAllReduce(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t) {
  return note("ncclAllReduce", name_of(comm), count, "op", int(op));
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t) {
  return note("ncclReduceScatter", name_of(comm), count, "op", int(op));
}
ncclResult_t ncclReduce(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t, int root,
                        ncclComm_t comm, cudaStream_t) {
  return note("ncclReduce", name_of(comm), count, "root", root);
}
ncclResult_t ncclAllGather(const void*, void*, size_t count, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t) {
  return note("ncclAllGather", name_of(comm), count);
}
ncclResult_t ncclBroadcast(const void*, void*, size_t count, ncclDataType_t, int root,
                           ncclComm_t comm, cudaStream_t) {
  return note("ncclBroadcast", name_of(comm), count, "root", root);
}
ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t) {
  return note("ncclSend", name_of(comm), count, "peer", peer);
}
ncclResult_t ncclRecv(void*, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t) {
  return note("ncclRecv", name_of(comm), count, "peer", peer);
}
ncclResult_t ncclGroupStart() {
  return note("ncclGroupStart");
}
ncclResult_t ncclGroupEnd() {
  return note("ncclGroupEnd");
}
