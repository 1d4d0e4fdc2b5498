// flexccl.h says the same as the nccl.h of the installed wheel, and the library exports what
// PyTorch imports.
#include <dlfcn.h>

#include <map>
#include <string>

#include "check.h"

std::map<std::string, std::string> nccl_abi();
std::map<std::string, std::string> flexccl_abi();

TEST(same_values_layouts_and_prototypes) {
  const auto theirs = nccl_abi(), ours = flexccl_abi();
  CHECK_EQ(theirs.size(), ours.size());
  for (const auto& [name, text] : theirs) CHECK_EQ(name + " " + text, name + " " + ours.at(name));
}

// The undefined nccl* symbols of libtorch_cuda.so 2.11.0.
constexpr const char* kTorchImports[] = {"ncclAllGather",
                                         "ncclAllReduce",
                                         "ncclAlltoAll",
                                         "ncclBcast",
                                         "ncclBroadcast",
                                         "ncclCommAbort",
                                         "ncclCommCount",
                                         "ncclCommDeregister",
                                         "ncclCommDestroy",
                                         "ncclCommFinalize",
                                         "ncclCommGetAsyncError",
                                         "ncclCommInitAll",
                                         "ncclCommInitRank",
                                         "ncclCommInitRankConfig",
                                         "ncclCommInitRankScalable",
                                         "ncclCommRegister",
                                         "ncclCommShrink",
                                         "ncclCommSplit",
                                         "ncclCommUserRank",
                                         "ncclCommWindowDeregister",
                                         "ncclCommWindowRegister",
                                         "ncclDevCommCreate",
                                         "ncclDevCommDestroy",
                                         "ncclGetErrorString",
                                         "ncclGetLastError",
                                         "ncclGetUniqueId",
                                         "ncclGetVersion",
                                         "ncclGroupEnd",
                                         "ncclGroupSimulateEnd",
                                         "ncclGroupStart",
                                         "ncclMemAlloc",
                                         "ncclMemFree",
                                         "ncclRecv",
                                         "ncclRedOpCreatePreMulSum",
                                         "ncclRedOpDestroy",
                                         "ncclReduce",
                                         "ncclReduceScatter",
                                         "ncclSend"};
static_assert(std::size(kTorchImports) == 38);

TEST(library_exports_what_torch_imports) {
  void* library = dlopen(FLEXCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) std::cerr << dlerror() << "\n";
  CHECK(library != nullptr);
  for (const char* name : kTorchImports)
    if (library && !dlsym(library, name)) {
      std::cerr << name << "\n";
      CHECK(!"not exported");
    }
}

CHECK_MAIN
