// Groups go to NCCL as they are; what they leave in progress is waited for at the end.
#include <utility>
#include <vector>

#include "nccl_engine/communicator.h"

namespace flexccl::nccl_engine {
namespace {

struct Group {
  int depth = 0;
  std::vector<std::pair<Comm, std::uint64_t>> used;
};

Group& group() {
  thread_local Group mine;
  return mine;
}

}  // namespace

bool in_group() {
  return group().depth > 0;
}

void join_group(const Comm& comm, std::uint64_t generation) {
  group().used.emplace_back(comm, generation);
}

}  // namespace flexccl::nccl_engine

namespace engine = flexccl::nccl_engine;

ncclResult_t ncclGroupStart() {
  return engine::guarded([] {
    engine::check(engine::library().ncclGroupStart(), nullptr, "ncclGroupStart");
    ++engine::group().depth;
  });
}

ncclResult_t ncclGroupEnd() {
  return engine::guarded([] {
    if (engine::group().depth == 0)
      flexccl::fail(ncclInvalidUsage, "flexccl: ncclGroupEnd without ncclGroupStart");
    const ncclResult_t code = engine::library().ncclGroupEnd();
    if (--engine::group().depth > 0) return engine::check(code, nullptr, "ncclGroupEnd");
    const auto used = std::exchange(engine::group().used, {});
    if (code != ncclInProgress) return engine::check(code, nullptr, "ncclGroupEnd");
    for (const auto& [comm, generation] : used)
      engine::settle(*comm, generation, code, "ncclGroupEnd");
  });
}
