// libnccl.so.2 without NCCL: its functions jump to flexccl's, which goes by way of host memory. It
// has none of those with which flexccl repairs communicators, and finds its libraries in the folder
// NCCL_IMITATION_LIBRARIES. With which settings communicators are made it appends to the file
// NCCL_IMITATION_CONFIGS, if that is named. Of all processes the one that begins to make the N-th
// communicator never comes back from that, with NCCL_IMITATION_HANGS=N:FILE.
#include <dlfcn.h>
#include <fcntl.h>
#include <flexccl.h>
#include <unistd.h>

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
  F(ncclCommShrink)           \
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

decltype(&ncclCommInitRankScalable) make = nullptr;
decltype(&ncclCommSplit) divide = nullptr;

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
  make = reinterpret_cast<decltype(make)>(find("ncclCommInitRankScalable"));
  divide = reinterpret_cast<decltype(divide)>(find("ncclCommSplit"));
}

void note(const char* how, int rank, const ncclConfig_t* config) {
  const char* const file = std::getenv("NCCL_IMITATION_CONFIGS");
  std::FILE* const to = file ? std::fopen(file, "a") : nullptr;
  if (!to) return;
  if (!config)
    std::fprintf(to, "%s rank=%d nothing\n", how, rank);
  else
    std::fprintf(to, "%s rank=%d blocking=%d maxCTAs=%d net=%s name=%s\n", how, rank,
                 config->blocking, config->maxCTAs, config->netName ? config->netName : "-",
                 config->commName ? config->commName : "-");
  std::fclose(to);
}

// One byte of the file for each communicator that was begun.
void hang_if_asked() {
  const char* const asked = std::getenv("NCCL_IMITATION_HANGS");
  if (!asked) return;
  char* path = nullptr;
  const long which = std::strtol(asked, &path, 10);
  const int file = open(path + 1, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file < 0 || write(file, "x", 1) != 1) must(nullptr, path + 1);
  const long begun = lseek(file, 0, SEEK_CUR);  // behind what this process has appended
  close(file);
  while (begun == which) pause();
}

}  // namespace

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int count,
                                      ncclUniqueId* ids, ncclConfig_t* config) {
  note("init", rank, config);
  hang_if_asked();
  return make(comm, ranks, rank, count, ids, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
  note("split", key, config);
  return divide(comm, color, key, child, config);
}
