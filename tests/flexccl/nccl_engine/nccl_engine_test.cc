// The nccl engine against a fake NCCL: which calls it makes, with which numbers, at which versions.
// It has never run over several real GPUs.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "check.h"
#include "flexccl.h"

namespace {

struct Fake {
  const char* (*take_calls)();
  void (*fail)(const char* name, int code);
  void (*dawdle)(int polls);
  int (*alive)();
};

Fake fake;

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  CHECK(function != nullptr);
}

// Each scenario has a process of its own: the engine loads NCCL once.
void scenario(const char* name, const char* version, const std::function<void()>& body) {
  std::cout << name << ", NCCL " << version << std::endl;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    setenv("FAKE_NCCL_VERSION", version, 1);
    setenv("FLEXCCL_NCCL_LIBRARY", FAKE_NCCL, 1);
    void* library = dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr);
    find(library, "fake_nccl_take_calls", fake.take_calls);
    find(library, "fake_nccl_fail", fake.fail);
    find(library, "fake_nccl_dawdle", fake.dawdle);
    find(library, "fake_nccl_alive", fake.alive);
    body();
    std::exit(check::failures() ? 1 : 0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

std::string calls() {
  return fake.take_calls();
}

bool says(const std::string& part) {
  const std::string sentence = ncclGetLastError(nullptr);
  const bool found = sentence.find(part) != std::string::npos;
  if (!found) std::cerr << "[" << sentence << "] lacks [" << part << "]\n";
  return found;
}

// The given ranks of a communicator of `n`; the fake needs no others.
std::vector<ncclComm_t> some_of(int n, const std::vector<int>& ranks) {
  ncclUniqueId id;
  CHECK_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i)
    CHECK_EQ(ncclCommInitRank(&comms[i], n, id, ranks[i]), ncclSuccess);
  return comms;
}

int slot_of(ncclComm_t comm) {
  int slot = -1;
  CHECK_EQ(ncclCommUserRank(comm, &slot), ncclSuccess);
  return slot;
}

int size_of(ncclComm_t comm) {
  int size = -1;
  CHECK_EQ(ncclCommCount(comm, &size), ncclSuccess);
  return size;
}

std::uint32_t epoch_of(ncclComm_t comm) {
  flexcclState_t state{};
  state.size = sizeof state;
  CHECK_EQ(flexcclGetState(comm, &state), ncclSuccess);
  return state.epoch;
}

void replaces() {
  const auto comms = some_of(4, {0, 1, 3});
  CHECK_EQ(calls(),
           "ncclGetUniqueId id 1\n"
           "ncclCommInitRankConfig 4 rank 0 id 1 blocking 0\n"
           "ncclCommInitRankConfig 4 rank 1 id 1 blocking 0\n"
           "ncclCommInitRankConfig 4 rank 3 id 1 blocking 0\n");
  flexcclInfo_t exported, info;
  CHECK_EQ(ncclCommExportInfo(comms[1], 2, &exported), ncclSuccess);
  ncclComm_t fresh = nullptr;
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 2, &info), ncclSuccess);
  for (ncclComm_t comm : comms) CHECK_EQ(ncclReplaceNode(comm, 2, &info), ncclSuccess);
  CHECK_EQ(ncclCommSetupNewRank(fresh), ncclSuccess);
  CHECK_EQ(calls(),
           "ncclGetUniqueId id 2\n"
           "ncclCommRevoke #1 0\nncclCommAbort #1\n"
           "ncclCommInitRankConfig 4 rank 0 id 2 blocking 0\n"
           "ncclCommRevoke #2 0\nncclCommAbort #2\n"
           "ncclCommInitRankConfig 4 rank 1 id 2 blocking 0\n"
           "ncclCommRevoke #3 0\nncclCommAbort #3\n"
           "ncclCommInitRankConfig 4 rank 3 id 2 blocking 0\n"
           "ncclCommInitRankConfig 4 rank 2 id 2 blocking 0\n");
  // The handles are the ones that the program has, and mean what they meant.
  CHECK_EQ(slot_of(comms[2]), 3);
  CHECK_EQ(slot_of(fresh), 2);
  for (ncclComm_t comm : {comms[0], comms[2], fresh}) {
    CHECK_EQ(size_of(comm), 4);
    CHECK_EQ(epoch_of(comm), 1u);
  }
  // Once more is nothing.
  CHECK_EQ(ncclReplaceNode(comms[0], 2, &info), ncclSuccess);
  CHECK_EQ(ncclCommSetupNewRank(fresh), ncclSuccess);
  CHECK_EQ(calls(), "");
  for (ncclComm_t comm : {comms[0], comms[1], comms[2], fresh})
    CHECK_EQ(ncclCommDestroy(comm), ncclSuccess);
  CHECK_EQ(fake.alive(), 0);
}

void replaces_without_revoke() {
  const auto comms = some_of(2, {0});
  flexcclInfo_t exported, info;
  CHECK_EQ(ncclCommExportInfo(comms[0], 1, &exported), ncclSuccess);
  ncclComm_t fresh = nullptr;
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 1, &info), ncclSuccess);
  calls();
  CHECK_EQ(ncclReplaceNode(comms[0], 1, &info), ncclSuccess);
  CHECK_EQ(calls(), "ncclCommAbort #1\nncclCommInitRankConfig 2 rank 0 id 2 blocking 0\n");
}

void failed_replace_is_repeatable() {
  const auto comms = some_of(2, {0});
  flexcclInfo_t exported, info;
  ncclComm_t fresh = nullptr;
  CHECK_EQ(ncclCommExportInfo(comms[0], 1, &exported), ncclSuccess);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 1, &info), ncclSuccess);
  fake.fail("ncclCommInitRankConfig", ncclSystemError);
  CHECK_EQ(ncclReplaceNode(comms[0], 1, &info), ncclSystemError);
  CHECK(says("ncclCommInitRankConfig of NCCL [2.28.9] failed with [2]: the fake was told to fail"));
  CHECK_EQ(epoch_of(comms[0]), 0u);
  ncclResult_t state = ncclSuccess;
  CHECK_EQ(ncclCommGetAsyncError(comms[0], &state), ncclSuccess);
  CHECK_EQ(state, ncclRemoteError);
  float x = 0;
  CHECK_EQ(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comms[0], nullptr), ncclInvalidUsage);
  CHECK(says("since epoch [0] was given up: repair it"));
  // The new rank gave up as well: the next one starts over, with an id of its own.
  CHECK_EQ(ncclCommDestroy(fresh), ncclSuccess);
  CHECK_EQ(ncclCommExportInfo(comms[0], 1, &exported), ncclSuccess);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 1, &info), ncclSuccess);
  calls();
  CHECK_EQ(ncclReplaceNode(comms[0], 1, &info), ncclSuccess);
  CHECK_EQ(calls(), "ncclCommInitRankConfig 2 rank 0 id 3 blocking 0\n");
  CHECK_EQ(epoch_of(comms[0]), 1u);
  CHECK_EQ(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comms[0], nullptr), ncclSuccess);
}

void stuck_initialisation_ends_at_the_deadline() {
  const auto comms = some_of(2, {0});
  flexcclInfo_t exported, info;
  ncclComm_t fresh = nullptr;
  CHECK_EQ(ncclCommExportInfo(comms[0], 1, &exported), ncclSuccess);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 1, &info), ncclSuccess);
  CHECK_EQ(flexcclSetTimeout(50), ncclSuccess);
  fake.dawdle(-1);
  CHECK_EQ(ncclReplaceNode(comms[0], 1, &info), ncclRemoteError);
  CHECK(says("ncclCommInitRankConfig is not finished after [50] ms"));
  CHECK_EQ(fake.alive(), 0);  // what was half made is gone
  fake.dawdle(3);
  CHECK_EQ(flexcclSetTimeout(60000), ncclSuccess);
  CHECK_EQ(ncclReplaceNode(comms[0], 1, &info), ncclSuccess);
  CHECK_EQ(fake.alive(), 1);
}

void removes_and_adds() {
  CHECK_EQ(flexcclSetReservedSlots(1), ncclSuccess);
  const auto comms = some_of(3, {0, 2});
  calls();
  for (ncclComm_t comm : comms) CHECK_EQ(ncclRemoveNode(comm, 1), ncclSuccess);
  CHECK_EQ(calls(),
           "ncclCommShrink #1 without 1 of 1 flags 1\nncclCommAbort #1\n"
           "ncclCommShrink #2 without 1 of 1 flags 1\nncclCommAbort #2\n");
  CHECK_EQ(ncclRemoveNode(comms[0], 1), ncclSuccess);
  CHECK_EQ(calls(), "");
  // Numbers stay: rank 2 is NCCL's rank 1 now, and callers still say 2.
  CHECK_EQ(size_of(comms[1]), 2);
  CHECK_EQ(slot_of(comms[1]), 2);
  int x = 0;
  CHECK_EQ(ncclBroadcast(&x, &x, 1, ncclInt32, 2, comms[0], nullptr), ncclSuccess);
  CHECK_EQ(calls(), "ncclBroadcast #3 1 root 1\n");
  CHECK_EQ(ncclSend(&x, 1, ncclInt32, 1, comms[0], nullptr), ncclInvalidArgument);
  CHECK(says("rank [1] is not one of the [2] ranks"));

  // Behind all others: NCCL can grow.
  flexcclInfo_t exported, info;
  ncclComm_t fresh = nullptr;
  CHECK_EQ(ncclCommExportInfo(comms[0], 3, &exported), ncclSuccess);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 3, &info), ncclSuccess);
  for (ncclComm_t comm : comms) CHECK_EQ(ncclAddNode(comm, &info), ncclSuccess);
  CHECK_EQ(ncclCommSetupNewRank(fresh), ncclSuccess);
  CHECK_EQ(calls(),
           "ncclCommGetUniqueId #3 id 2\n"
           "ncclCommGrow #3 to 3 rank -1 id 2\nncclCommDestroy #3\n"
           "ncclCommGrow #4 to 3 rank -1 id 0\nncclCommDestroy #4\n"
           "ncclCommGrow none to 3 rank 2 id 2\n");
  CHECK_EQ(slot_of(fresh), 3);
  CHECK_EQ(epoch_of(fresh), 2u);

  // In the middle: only a fresh initialisation has the right order.
  CHECK_EQ(ncclCommExportInfo(fresh, 1, &exported), ncclSuccess);
  ncclComm_t middle = nullptr;
  CHECK_EQ(ncclInitNewNode(&middle, &exported, 1, &info), ncclSuccess);
  calls();
  for (ncclComm_t comm : {comms[0], comms[1], fresh})
    CHECK_EQ(ncclAddNode(comm, &info), ncclSuccess);
  CHECK_EQ(ncclCommSetupNewRank(middle), ncclSuccess);
  CHECK_EQ(calls(),
           "ncclCommRevoke #5 0\nncclCommAbort #5\n"
           "ncclCommInitRankConfig 4 rank 0 id 3 blocking 0\n"
           "ncclCommRevoke #6 0\nncclCommAbort #6\n"
           "ncclCommInitRankConfig 4 rank 2 id 3 blocking 0\n"
           "ncclCommRevoke #7 0\nncclCommAbort #7\n"
           "ncclCommInitRankConfig 4 rank 3 id 3 blocking 0\n"
           "ncclCommInitRankConfig 4 rank 1 id 3 blocking 0\n");
  CHECK_EQ(size_of(middle), 4);
}

void failed_shrink_keeps_the_parent() {
  const auto comms = some_of(3, {0});
  fake.fail("ncclCommShrink", ncclInternalError);
  CHECK_EQ(ncclRemoveNode(comms[0], 2), ncclInternalError);
  CHECK_EQ(size_of(comms[0]), 3);
  CHECK_EQ(epoch_of(comms[0]), 0u);
  CHECK_EQ(ncclRemoveNode(comms[0], 2), ncclSuccess);
  CHECK_EQ(size_of(comms[0]), 2);
  CHECK_EQ(fake.alive(), 1);
}

void old_versions() {
  CHECK_EQ(flexcclSetReservedSlots(1), ncclSuccess);
  const auto comms = some_of(3, {0});
  CHECK_EQ(ncclRemoveNode(comms[0], 1), ncclInvalidUsage);
  CHECK(says("needs ncclCommShrink, which NCCL [2.26.2] has not: 2.27.3 or newer"));
  flexcclInfo_t exported, info;
  ncclComm_t fresh = nullptr;
  CHECK_EQ(ncclCommExportInfo(comms[0], 3, &exported), ncclSuccess);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 3, &info), ncclSuccess);
  calls();
  CHECK_EQ(ncclAddNode(comms[0], &info), ncclSuccess);
  CHECK_EQ(calls(), "ncclCommAbort #1\nncclCommInitRankConfig 4 rank 0 id 2 blocking 0\n");
}

void too_old() {
  ncclUniqueId id;
  CHECK_EQ(ncclGetUniqueId(&id), ncclSystemError);
  CHECK(says("NCCL [2.17.1] is older than [2.18]"));
}

void operators_survive() {
  const auto comms = some_of(2, {0});
  float half = 0.5f, x = 0;
  ncclRedOp_t op;
  CHECK_EQ(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, comms[0]),
           ncclSuccess);
  half = 9;
  calls();
  CHECK_EQ(ncclAllReduce(&x, &x, 1, ncclFloat32, op, comms[0], nullptr), ncclSuccess);
  CHECK_EQ(calls(), "ncclRedOpCreatePreMulSum #1 0.5\nncclAllReduce #1 1 op 101\n");
  flexcclInfo_t exported, info;
  ncclComm_t fresh = nullptr;
  CHECK_EQ(ncclCommExportInfo(comms[0], 1, &exported), ncclSuccess);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 1, &info), ncclSuccess);
  CHECK_EQ(ncclReplaceNode(comms[0], 1, &info), ncclSuccess);
  calls();
  CHECK_EQ(ncclAllReduce(&x, &x, 1, ncclFloat32, op, comms[0], nullptr), ncclSuccess);
  CHECK_EQ(ncclAllReduce(&x, &x, 1, ncclFloat32, op, comms[0], nullptr), ncclSuccess);
  CHECK_EQ(calls(),
           "ncclRedOpCreatePreMulSum #2 0.5\nncclAllReduce #2 1 op 102\n"
           "ncclAllReduce #2 1 op 102\n");
  CHECK_EQ(ncclRedOpDestroy(op, comms[0]), ncclSuccess);
  CHECK_EQ(calls(), "ncclRedOpDestroy #2 102\n");
  CHECK_EQ(ncclRedOpDestroy(op, comms[0]), ncclInvalidArgument);
}

void groups_and_children() {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclComm_t comms[2];
  calls();
  fake.dawdle(2);
  ncclGroupStart();
  for (int r = 0; r < 2; ++r) CHECK_EQ(ncclCommInitRank(&comms[r], 2, id, r), ncclSuccess);
  CHECK_EQ(ncclGroupEnd(), ncclSuccess);
  CHECK_EQ(calls(),
           "ncclGroupStart\nncclCommInitRankConfig 2 rank 0 id 1 blocking 0\n"
           "ncclCommInitRankConfig 2 rank 1 id 1 blocking 0\nncclGroupEnd\n");
  CHECK_EQ(ncclGroupEnd(), ncclInvalidUsage);
  ncclComm_t child = nullptr, none = comms[0];
  CHECK_EQ(ncclCommSplit(comms[1], 5, 0, &child, nullptr), ncclSuccess);
  CHECK_EQ(slot_of(child), 1);
  CHECK_EQ(ncclCommSplit(comms[0], NCCL_SPLIT_NOCOLOR, 0, &none, nullptr), ncclSuccess);
  CHECK(none == nullptr);
}

void wrong_infos() {
  CHECK_EQ(flexcclSetReservedSlots(1), ncclSuccess);
  const auto comms = some_of(3, {0, 1});
  const auto others = some_of(3, {0});
  flexcclInfo_t exported, info, nothing{};
  ncclComm_t fresh = nullptr;
  CHECK_EQ(ncclCommExportInfo(comms[0], 0, &exported), ncclInvalidArgument);
  CHECK_EQ(ncclCommExportInfo(comms[0], 4, &exported), ncclInvalidArgument);
  CHECK(says("slot [4] of [4] cannot be taken"));
  CHECK_EQ(ncclCommExportInfo(comms[0], 2, &exported), ncclSuccess);
  CHECK_EQ(ncclInitNewNode(&fresh, &nothing, 2, &info), ncclInvalidArgument);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 1, &info), ncclInvalidArgument);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 2, &info), ncclSuccess);
  CHECK_EQ(ncclReplaceNode(comms[0], 2, &exported), ncclInvalidArgument);
  CHECK(says("the info comes from [ncclCommExportInfo], the call needs that of [ncclInitNewNode]"));
  CHECK_EQ(ncclReplaceNode(comms[0], 1, &info), ncclInvalidArgument);
  CHECK(says("the new rank takes slot [2], not [1]"));
  CHECK_EQ(ncclReplaceNode(others[0], 2, &info), ncclInvalidArgument);
  CHECK(says("belongs to another communicator"));
  CHECK_EQ(ncclReplaceNode(comms[0], 2, &info), ncclSuccess);
  // An older plan than what this rank has done.
  flexcclInfo_t late;
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 2, &late), ncclSuccess);
  CHECK_EQ(ncclReplaceNode(comms[0], 2, &late), ncclInvalidUsage);
  CHECK(says("leads to epoch [1], rank [0] is at [1]: export again"));
  // A second failure during the repair: the newest info takes everybody along.
  CHECK_EQ(ncclCommExportInfo(comms[0], 2, &exported), ncclSuccess);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 2, &info), ncclSuccess);
  CHECK_EQ(ncclReplaceNode(comms[0], 2, &info), ncclSuccess);
  CHECK_EQ(ncclReplaceNode(comms[1], 2, &info), ncclSuccess);
  CHECK_EQ(epoch_of(comms[1]), 2u);
  CHECK_EQ(flexcclSynchronize(comms[0]), ncclInvalidUsage);
  CHECK(says("the nccl engine has no [flexcclSynchronize]: wait for the stream"));
}

}  // namespace

int main() {
  scenario("replace", "22809", replaces);
  scenario("replace without revoke", "22803", replaces_without_revoke);
  scenario("failed replace", "22809", failed_replace_is_repeatable);
  scenario("stuck initialisation", "22809", stuck_initialisation_ends_at_the_deadline);
  scenario("remove and add", "22902", removes_and_adds);
  scenario("failed shrink", "22809", failed_shrink_keeps_the_parent);
  scenario("old version", "22602", old_versions);
  scenario("too old", "21701", too_old);
  scenario("operators", "22809", operators_survive);
  scenario("groups and children", "22809", groups_and_children);
  scenario("wrong infos", "22809", wrong_infos);
  return check::failures() ? 1 : 0;
}
