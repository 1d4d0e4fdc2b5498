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
