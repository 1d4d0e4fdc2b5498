// What a program that uses flexccl.h may call and this engine has not. Nothing is silently missing.
#include "nccl_engine/communicator.h"

#define REFUSE(name, parameters, why)                                                       \
  ncclResult_t name parameters {                                                            \
    return flexccl::nccl_engine::guarded([] {                                               \
      flexccl::fail(ncclInvalidUsage, "flexccl: the nccl engine has no [" #name "]: " why); \
    });                                                                                     \
  }

#define NO_KEPT "NCCL keeps nothing of its operations, all ranks replay"
REFUSE(flexcclSetRepair, (uint64_t), NO_KEPT)
REFUSE(flexcclSetRecords, (ncclComm_t, void*, size_t), NO_KEPT)
REFUSE(flexcclCommitted, (ncclComm_t, uint64_t), NO_KEPT)
REFUSE(flexcclAskAround, (ncclComm_t), NO_KEPT)
REFUSE(flexcclReplay, (ncclComm_t, void*, size_t, uint64_t), NO_KEPT)
REFUSE(flexcclSetContents, (void*, size_t, int), NO_KEPT)
REFUSE(flexcclAdopt, (ncclComm_t*, void*, size_t, uint64_t), NO_KEPT)
REFUSE(flexcclForget, (void*, size_t), NO_KEPT)
REFUSE(flexcclFind, (uint64_t, ncclComm_t*), NO_KEPT)
REFUSE(flexcclReplaceLater, (uint64_t, int, const flexcclInfo_t*), NO_KEPT)
REFUSE(flexcclRankLeft, (uint64_t, int), NO_KEPT)
REFUSE(flexcclNumberOf, (const ncclUniqueId*, uint64_t*), NO_KEPT)
REFUSE(flexcclChildren, (ncclComm_t, int, flexcclChild_t*, int*), NO_KEPT)
REFUSE(flexcclSetDiverged, (flexcclDiverged_t), NO_KEPT)
REFUSE(flexcclSetMaking, (flexcclMaking_t), NO_KEPT)
REFUSE(flexcclSetFailed, (flexcclFailed_t), "ask ncclCommGetAsyncError")
REFUSE(flexcclSetStreamTable, (const flexcclStreamTable*), "NCCL uses CUDA's streams")
REFUSE(flexcclSynchronize, (ncclComm_t), "wait for the stream")
REFUSE(flexcclSetTransport, (flexcclTransport_t), "NCCL chooses")
REFUSE(flexcclSetFault, (const char*), "NCCL's connections are its own")

#define NOT_PASSED_ON "it is not passed on to NCCL"
REFUSE(ncclCommWindowRegister, (ncclComm_t, void*, size_t, ncclWindow_t*, int), NOT_PASSED_ON)
REFUSE(ncclCommWindowDeregister, (ncclComm_t, ncclWindow_t), NOT_PASSED_ON)
REFUSE(ncclDevCommCreate, (ncclComm_t, const struct ncclDevCommRequirements*, struct ncclDevComm*),
       NOT_PASSED_ON)
REFUSE(ncclDevCommDestroy, (ncclComm_t, const struct ncclDevComm*), NOT_PASSED_ON)
REFUSE(ncclGroupSimulateEnd, (ncclSimInfo_t*), NOT_PASSED_ON)
