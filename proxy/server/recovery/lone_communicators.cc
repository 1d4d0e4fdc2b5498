#include "server/recovery/lone_communicators.h"

#include <list>

namespace pyft::server {

namespace {

struct Lone {
  int rank, size;
};

Lone of(ncclComm_t comm) {
  return *reinterpret_cast<const Lone*>(comm);
}

// They stay as long as the process, which ends soon.
ncclComm_t make(int rank, int size) {
  static std::list<Lone> all;
  all.push_back({rank, size});
  return reinterpret_cast<ncclComm_t>(&all.back());
}

// What is about to be made from another one, which only all of its ranks together can tell.
Lone divided{0, 0};

ncclResult_t take_divided(ncclComm_t* out) {
  *out = divided.size ? make(divided.rank, divided.size) : nullptr;
  return ncclSuccess;
}

}  // namespace

void* LoneCommunicators::made_before(uint64_t handle, uint64_t seq) {
  const uint64_t line = table_.committed().seq;
  for (const ring::StoredCommunicator& entry : table_.all()) {
    const bool over = entry.ended_seq && entry.ended_seq <= line;
    if (entry.handle == handle && entry.seq == seq && !over && seq <= line)
      return make(entry.rank, entry.size);
  }
  return nullptr;
}

// Without an entry this rank is not in it.
void LoneCommunicators::divides(uint64_t handle, uint64_t, uint64_t) {
  const uint64_t line = table_.committed().seq;
  divided = {0, 0};
  for (const ring::StoredCommunicator& entry : table_.all())
    if (entry.handle == handle && entry.seq > line) divided = {entry.rank, entry.size};
}

backend::Table with_lone_communicators(backend::Table table) {
  table.ncclGetUniqueId = [](ncclUniqueId* id) {
    *id = {};
    return ncclSuccess;
  };
  table.ncclCommInitRankScalable = [](ncclComm_t* out, int size, int rank, int, ncclUniqueId*,
                                      ncclConfig_t*) {
    *out = make(rank, size);
    return ncclSuccess;
  };
  table.ncclCommSplit = [](ncclComm_t, int, int, ncclComm_t* out, ncclConfig_t*) {
    return take_divided(out);
  };
  table.ncclCommShrink = [](ncclComm_t, int*, int, ncclComm_t* out, ncclConfig_t*, int) {
    return take_divided(out);
  };
  table.ncclCommCount = [](ncclComm_t comm, int* count) {
    *count = of(comm).size;
    return ncclSuccess;
  };
  table.ncclCommUserRank = [](ncclComm_t comm, int* rank) {
    *rank = of(comm).rank;
    return ncclSuccess;
  };
  table.ncclCommGetAsyncError = [](ncclComm_t, ncclResult_t* error) {
    *error = ncclSuccess;
    return ncclSuccess;
  };
  for (auto* end : {&table.ncclCommFinalize, &table.ncclCommDestroy, &table.ncclCommAbort})
    *end = [](ncclComm_t) { return ncclSuccess; };
  // Reductions are not made here, so an operator of any number will do.
  table.ncclRedOpCreatePreMulSum = [](ncclRedOp_t* op, void*, ncclDataType_t, ncclScalarResidence_t,
                                      ncclComm_t) {
    *op = ncclSum;
    return ncclSuccess;
  };
  table.ncclRedOpDestroy = [](ncclRedOp_t, ncclComm_t) { return ncclSuccess; };
  table.ncclGroupStart = [] { return ncclSuccess; };
  table.ncclGroupEnd = [] { return ncclSuccess; };
  return table;
}

}  // namespace pyft::server
