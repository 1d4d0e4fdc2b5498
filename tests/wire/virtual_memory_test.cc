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
  const uint64_t memory = Handle::make(HandleKind::kPhysicalMemory, 1, 1).value;

  Own() : OwnServer(&table()) {
    given.clear();
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

// The program may give itself access again, and expects what was there.
TEST(memory_without_access_is_live_if_it_had_some) {
  Own own;
  own.access(0);
  CHECK_EQ(own.live(), 0u);
  CHECK(given == std::vector{0u});
  own.access(kWrite);
  own.access(0);
  CHECK_EQ(own.live(), 1u);
  CHECK(given == (std::vector{0u, kWrite, kRead}));  // so that the snapshot can read it
}

TEST(a_restore_writes_memory_without_access) {
  Own own;
  own.session.recovery().enter(ring::Phase::kObjects);
  own.access(0);
  own.session.recovery().enter(ring::Phase::kRestore);
  CHECK(given == std::vector{kWrite});
  CHECK_EQ(own.live(), 1u);
  CHECK_EQ(server::protect_mappings(own.session), 0);
  CHECK(given == (std::vector{kWrite, kRead}));
}

TEST(memory_that_is_mapped_nowhere_is_out_of_reach_if_it_has_contents) {
  Own own;
  const auto unmap = [&] {
    CHECK(own.dispatch(Call::cuMemUnmap, cmd::cuMemUnmap{kMemory, kBytes}).ok());
  };
  const auto map = [&] {
    CHECK(own.dispatch(Call::cuMemMap, cmd::cuMemMap{kMemory, kBytes, 0, own.memory}).ok());
  };
  const auto problem = [&] { return server::unmapped_contents(own.session); };
  unmap();
  CHECK(problem().empty());  // it never had any
  map();
  own.access(kWrite);
  CHECK(problem().empty());
  unmap();
  CHECK(problem().find("unmapped and not released") != std::string::npos);
  map();
  CHECK(!problem().empty());  // not before it can be read
  own.access(kWrite);
  CHECK(problem().empty());
  unmap();
  CHECK(own.dispatch(Call::cuMemRelease, cmd::cuMemRelease{own.memory}).ok());
  CHECK(problem().empty());
}

TEST(memory_that_is_released_while_it_is_mapped_ends_with_its_mapping) {
  Own own;
  own.access(kWrite);
  CHECK(own.dispatch(Call::cuMemRelease, cmd::cuMemRelease{own.memory}).ok());
  CHECK(own.dispatch(Call::cuMemCreate, cmd::cuMemCreate{own.memory, kBytes}).ok());
  CHECK_EQ(own.live(), 1u);
  CHECK(own.dispatch(Call::cuMemUnmap, cmd::cuMemUnmap{kMemory, kBytes}).ok());
  CHECK_EQ(own.live(), 0u);
  CHECK(server::unmapped_contents(own.session).empty());  // of another one with that handle
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
