// libnccl.so.2 without NCCL: its functions jump to flexccl's, which goes by way of host memory. It
// has none of those with which flexccl repairs communicators, and finds its libraries in the folder
// NCCL_IMITATION_LIBRARIES.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#define FUNCTIONS(F)          \
  F(ncclAllGather)            \
  F(ncclAllReduce)            \
  F(ncclAlltoAll)             \
  F(ncclBroadcast)            \
  F(ncclCommAbort)            \
  F(ncclCommCount)            \
  F(ncclCommDestroy)          \
  F(ncclCommFinalize)         \
  F(ncclCommGetAsyncError)    \
  F(ncclCommInitRankScalable) \
  F(ncclCommShrink)           \
  F(ncclCommSplit)            \
  F(ncclCommUserRank)         \
  F(ncclGather)               \
  F(ncclGetLastError)         \
  F(ncclGetUniqueId)          \
  F(ncclGroupEnd)             \
  F(ncclGroupStart)           \
  F(ncclRecv)                 \
  F(ncclRedOpCreatePreMulSum) \
  F(ncclRedOpDestroy)         \
  F(ncclReduce)               \
  F(ncclReduceScatter)        \
  F(ncclScatter)              \
  F(ncclSend)

#define JUMP(name)                                                               \
  extern "C" __attribute__((visibility("hidden"))) void* to_##name;              \
  void* to_##name = nullptr;                                                     \
  asm(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n" #name \
      ":\n  jmp *to_" #name "(%rip)\n.popsection\n");
FUNCTIONS(JUMP)

namespace {

void* must(void* found, const std::string& what) {
  if (found) return found;
  std::fprintf(stderr, "the imitation of NCCL: [%s]: %s\n", what.c_str(), dlerror());
  std::abort();
}

[[gnu::constructor]] void find_functions() {
  const char* const folder = std::getenv("NCCL_IMITATION_LIBRARIES");
  const auto open = [&](const std::string& path) {
    return must(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), path);
  };
  const std::string native = std::string(folder ? folder : ".") + "/";
  open(native + "libflexccl.so");
  void* const staged = open(native + "libpyft_collectives.so");
  const char* const use = "pyft_collectives_use_driver";
  const auto use_driver = reinterpret_cast<int (*)(void*)>(must(dlsym(staged, use), use));
  if (use_driver(open("libcuda.so.1")) != 0) must(nullptr, "the driver's functions");
  const auto find = [&](const std::string& name) {
    void* const found = dlsym(staged, ("pyft_staged_" + name).c_str());
    return found ? found : must(dlsym(staged, name.c_str()), name);
  };
#define FIND(name) to_##name = find(#name);
  FUNCTIONS(FIND)
}

}  // namespace
