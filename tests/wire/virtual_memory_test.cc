// Memory that the program maps itself, as snapshots and restores see it.
#include <vector>

#include "api/mock_table.h"
#include "check.h"
#include "own_server.h"
#include "server/handlers/live_objects.h"

using namespace pyft;  // NOLINT: a test

namespace {

constexpr uint64_t kMemory = ring::kDeviceWindowBase, kBytes = ring::kGranule;
constexpr uint32_t kRead = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr uint32_t kWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

std::vector<uint32_t> given;  // access, in order

const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc* access, size_t) {
      given.push_back(access->flags);
      return CUDA_SUCCESS;
    };
    return t;
  }();
  return made;
}

struct Own : OwnServer {
  Own() : OwnServer(&table()) {
    given.clear();
    const uint64_t memory = Handle::make(HandleKind::kPhysicalMemory, 1, 1).value;
    CHECK(dispatch(Call::cuMemCreate, cmd::cuMemCreate{memory, kBytes}).ok());
    CHECK(dispatch(Call::cuMemMap, cmd::cuMemMap{kMemory, kBytes, 0, memory}).ok());
  }
  void access(uint32_t flags) {
    CHECK(dispatch(Call::cuMemSetAccess, cmd::cuMemSetAccess{kMemory, kBytes, flags, 0}).ok());
  }
  size_t live() {
    std::vector<checkpoint::MemoryRange> ranges;
    server::accessible_mappings(session, &ranges);
    return ranges.size();
  }
};

TEST(memory_that_may_only_be_read_is_live) {
  Own own;
  CHECK_EQ(own.live(), 0u);
  own.access(kWrite);
  CHECK_EQ(own.live(), 1u);
  own.access(kRead);
  CHECK_EQ(own.live(), 1u);
  CHECK(given == (std::vector{kWrite, kRead}));
  CHECK_EQ(server::protect_mappings(own.session), 0);
  CHECK_EQ(given.size(), 2u);  // it is already
}

TEST(a_restore_writes_it_before_it_may_only_be_read) {
  Own own;
  own.session.recovery().enter(ring::Phase::kObjects);
  own.access(kRead);
  own.session.recovery().enter(ring::Phase::kRestore);
  CHECK(given == std::vector{kWrite});
  CHECK_EQ(own.live(), 1u);
  CHECK_EQ(server::protect_mappings(own.session), 0);
  CHECK(given == (std::vector{kWrite, kRead}));
  CHECK_EQ(server::protect_mappings(own.session), 0);
  CHECK_EQ(given.size(), 2u);
}

}  // namespace

CHECK_MAIN
