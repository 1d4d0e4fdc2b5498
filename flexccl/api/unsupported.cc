// Exported functions that this version refuses, by name.
#include "api/state.h"

namespace {

ncclResult_t refuse(const char* name) {
  return flexccl::guarded(
      [&] { flexccl::fail(ncclInvalidUsage, "flexccl: [", name, "] is not implemented"); });
}

}  // namespace

ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int) {
  return refuse("ncclCommWindowRegister");
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return refuse("ncclCommWindowDeregister");
}
ncclResult_t ncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements*, ncclDevComm*) {
  return refuse("ncclDevCommCreate");
}
ncclResult_t ncclDevCommDestroy(ncclComm_t, const ncclDevComm*) {
  return refuse("ncclDevCommDestroy");
}
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  return refuse("ncclGroupSimulateEnd");
}

ncclResult_t ncclCommExportInfo(ncclComm_t, int, flexcclInfo_t*) {
  return refuse("ncclCommExportInfo");
}
ncclResult_t ncclInitNewNode(ncclComm_t*, const flexcclInfo_t*, int, flexcclInfo_t*) {
  return refuse("ncclInitNewNode");
}
ncclResult_t ncclReplaceNode(ncclComm_t, int, const flexcclInfo_t*) {
  return refuse("ncclReplaceNode");
}
ncclResult_t ncclAddNode(ncclComm_t, const flexcclInfo_t*) {
  return refuse("ncclAddNode");
}
ncclResult_t ncclRemoveNode(ncclComm_t, int) {
  return refuse("ncclRemoveNode");
}
ncclResult_t ncclCommSetupNewRank(ncclComm_t) {
  return refuse("ncclCommSetupNewRank");
}

ncclResult_t flexcclGetState(ncclComm_t, flexcclState_t*) {
  return refuse("flexcclGetState");
}
ncclResult_t flexcclSetReservedSlots(int) {
  return refuse("flexcclSetReservedSlots");
}
ncclResult_t flexcclSetRepair(uint64_t) {
  return refuse("flexcclSetRepair");
}
ncclResult_t flexcclSetRecords(ncclComm_t, void*, size_t) {
  return refuse("flexcclSetRecords");
}
ncclResult_t flexcclCommitted(ncclComm_t, uint64_t) {
  return refuse("flexcclCommitted");
}
ncclResult_t flexcclReplay(ncclComm_t, void*, size_t, uint64_t) {
  return refuse("flexcclReplay");
}
