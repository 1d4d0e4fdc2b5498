// Threads of a program that use memory which it maps itself: none waits for the other for ever.
#include <cstdlib>
#include <thread>

#include "api/mock_table.h"
#include "check.h"
#include "comes.h"
#include "one_process.h"

using namespace pyft;  // NOLINT: a test

namespace {

constexpr uint64_t kPiece = 2 << 20;
constexpr int kRounds = 300'000;

const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.ncclCommInitRankScalable = [](ncclComm_t* comm, int, int, int, ncclUniqueId*, ncclConfig_t*) {
      *comm = reinterpret_cast<ncclComm_t>(0x4000);
      return ncclSuccess;
    };
    t.ncclCommCount = [](const ncclComm_t, int* count) {
      *count = 2;
      return ncclSuccess;
    };
    return t;
  }();
  return made;
}

// As PyTorch does with expandable segments, at whose beginning it reserves addresses.
CUdeviceptr map_piece() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  CHECK_EQ(cuMemAddressReserve(&base, kPiece, 0, 0, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemCreate(&handle, kPiece, &prop, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemMap(base, kPiece, 0, handle, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemSetAccess(base, kPiece, &access, 1), CUDA_SUCCESS);
  return base;
}

}  // namespace

TEST(a_collective_goes_on_while_another_thread_reserves_addresses) {
  new OneProcess(&table());  // its thread stays
  ncclComm_t comm = nullptr;
  CHECK_EQ(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0), ncclSuccess);
  auto* const data = reinterpret_cast<float*>(map_piece());
  std::atomic<int> ended{0}, wrong{0};
  const auto thread = [&](auto step) {
    return std::thread([&, step] {
      for (int round = 0; round < kRounds; ++round) wrong += !step();
      ++ended;
    });
  };
  std::thread reduces = thread([&] {
    return ncclAllReduce(data, data, 8, ncclFloat32, ncclSum, comm, nullptr) == ncclSuccess;
  });
  std::thread reserves = thread([] {
    CUdeviceptr at = 0;
    return cuMemAddressReserve(&at, kPiece, 0, 0, 0) == CUDA_SUCCESS &&
           cuMemAddressFree(at, kPiece) == CUDA_SUCCESS;
  });
  CHECK(comes([&] { return ended == 2; }));
  if (ended < 2) std::_Exit(1);  // they would never be joined
  reduces.join();
  reserves.join();
  CHECK_EQ(wrong.load(), 0);
}

CHECK_MAIN
