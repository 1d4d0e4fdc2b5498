// Second executions of products: whose turn it is, the server's own memory, other places.
#include "server/dmr/second_executions.h"
#include "check.h"
#include "own_server.h"
#include "server/dmr/again.h"
#include "server/dmr/rotation.h"
#include "server/dmr/shadow.h"

// Behind the names of calls, some of which these redefine.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstring>
#include <random>
#include <set>

namespace {

using namespace pyft;          // NOLINT: a test
using namespace pyft::server;  // NOLINT
using dmr::Rotation;
using dmr::ShadowMemory;

constexpr uint64_t kMs = 1'000'000;

// Products that each take so long, in each interval the same ones in the same order.
class Steps {
 public:
  Steps(double share, std::vector<uint64_t> costs, bool all = false)
      : rotation_({all, share}), costs_(std::move(costs)) {}
  // One interval of 100 ms; which were executed again.
  std::set<size_t> step(uint64_t ms = 100) {
    std::set<size_t> again;
    const uint64_t interval = rotation_.interval();
    for (size_t i = 0; i < costs_.size(); ++i) {
      const Rotation::Name name = rotation_.next({i, 0});
      const bool now = rotation_.turn(name) == Rotation::Turn::kNow;
      rotation_.cost(name, costs_[i] * kMs);
      if (!now) continue;
      again.insert(i);
      CHECK(rotation_.covered(name, interval));
      CHECK(!rotation_.covered(name, interval));  // once
      rotation_.spent(costs_[i] * kMs);
      spent_ms += costs_[i];
    }
    now_ns_ += ms * kMs;
    rotation_.at_cut(now_ns_);
    return again;
  }
  Rotation& rotation() { return rotation_; }
  uint64_t spent_ms = 0;

 private:
  Rotation rotation_;
  std::vector<uint64_t> costs_;
  uint64_t now_ns_ = 0;
};

}  // namespace

TEST(all_are_executed_again_where_nothing_is_left_out) {
  Steps steps(0, {1, 200, 3}, true);
  for (int i = 0; i < 3; ++i) CHECK_EQ(steps.step().size(), size_t{3});
  CHECK_EQ(steps.rotation().period(), uint64_t{1});
}

TEST(those_whose_last_time_is_the_longest_ago_are_next) {
  Steps steps(0.03, std::vector<uint64_t>(12, 1));  // 3 of 12 in each interval
  for (int i = 0; i < 8; ++i) steps.step();
  std::multiset<size_t> found;
  for (int i = 0; i < 8; ++i)
    for (const size_t one : steps.step()) found.insert(one);
  CHECK_EQ(found.size(), size_t{24});
  for (size_t i = 0; i < 12; ++i) CHECK_EQ(found.count(i), size_t{2});
  CHECK_EQ(steps.rotation().period(), uint64_t{4});
}

TEST(one_that_is_larger_than_the_budget_has_its_turn_when_enough_was_saved) {
  Steps steps(0.03, {10, 1, 1});
  for (int i = 0; i < 100; ++i) steps.step();
  int large = 0;
  for (int i = 0; i < 100; ++i) large += steps.step().contains(0);
  CHECK(large >= 20 && large <= 25);
  CHECK(steps.rotation().period() <= 6);
  CHECK(steps.spent_ms <= 6 * 100 + 13);  // 3 of 100 ms, and what was saved
}

TEST(the_budget_is_kept_whatever_products_take) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> costs(1 + random() % 40);
    uint64_t largest = 0;
    for (uint64_t& one : costs) largest = std::max(largest, one = 1 + random() % 60);
    const double share = 0.01 * static_cast<double>(1 + random() % 30);
    Steps steps(share, costs);
    uint64_t ms = 0;
    for (int i = 0; i < 200; ++i) {
      const uint64_t length = 50 + random() % 200;
      ms += length;
      steps.step(length);
      CHECK(static_cast<double>(steps.spent_ms) <=
            share * static_cast<double>(ms) + static_cast<double>(largest));
    }
    CHECK(steps.rotation().period() < 200 || share * 200 * 100 < 60.0 * 40);
  }
}

TEST(what_was_in_a_pair_is_not_executed_again) {
  Rotation rotation({true, 0});
  const auto interval = [&](bool pairs) {
    const uint64_t number = rotation.interval();
    const Rotation::Name first = rotation.next({1, 0}), second = rotation.next({1, 0});
    CHECK(first != second);
    const auto turn = rotation.turn(first);
    CHECK(rotation.turn(second) == turn);
    if (pairs)
      for (const auto name : {first, second}) {
        rotation.paired(name, number);
        rotation.covered(name, number);
      }
    rotation.at_cut(number * kMs);
    return turn;
  };
  CHECK(interval(true) == Rotation::Turn::kNow);  // not known yet
  CHECK(interval(true) == Rotation::Turn::kPair);
  CHECK(interval(false) == Rotation::Turn::kPair);  // it has not come
  CHECK(interval(true) == Rotation::Turn::kNow);
}

TEST(more_products_than_are_told_apart_are_never_planned) {
  Rotation rotation({false, 1});
  for (uint64_t i = 0; i < Rotation::kMost + 100; ++i) rotation.next({i, 0});
  const Rotation::Name one = rotation.next({1'000'000, 0});
  rotation.cost(one, 1);
  rotation.at_cut(kMs);
  CHECK(rotation.next({1'000'000, 0}) == one);
  CHECK(rotation.turn(one) == Rotation::Turn::kLater);
  for (int i = 0; i < 4; ++i) rotation.at_cut(kMs);  // those of before are forgotten
  CHECK(rotation.next({1'000'000, 0}) == one);
  rotation.cost(one, 1);
  rotation.at_cut(2 * kMs);
  CHECK(rotation.next({1'000'000, 0}) == one);
  CHECK(rotation.turn(one) == Rotation::Turn::kNow);
}

namespace {

uint64_t device_taken = 0, device_has = 0;

CUresult create(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp*,
                unsigned long long) {
  if (device_taken + bytes > device_has) return CUDA_ERROR_OUT_OF_MEMORY;
  device_taken += bytes;
  *out = bytes;
  return CUDA_SUCCESS;
}

// Not that of variables of modules: there is no cuMemAlloc.
backend::Table table_with_memory(uint64_t bytes, backend::Table table = {}) {
  table.cuMemAddressReserve = [](CUdeviceptr* out, size_t, size_t, CUdeviceptr,
                                 unsigned long long) {
    *out = 0x10000000;
    return CUDA_SUCCESS;
  };
  table.cuMemCreate = create;
  table.cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                      unsigned long long) { return CUDA_SUCCESS; };
  table.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_SUCCESS;
  };
  table.cuMemUnmap = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  table.cuMemRelease = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  device_taken = 0;
  device_has = bytes;
  return table;
}

}  // namespace

TEST(memory_of_the_servers_own_stays_within_its_bound) {
  constexpr uint64_t kMost = 64 << 20;
  const backend::Table table = table_with_memory(uint64_t{1} << 40);
  const auto memory = std::make_shared<ShadowMemory>(table, kMost);
  std::mt19937_64 random(3);
  std::vector<std::shared_ptr<const ShadowMemory::Piece>> pieces;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 && !pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      pieces.pop_back();
      continue;
    }
    auto piece = memory->take(1 + random() % (4 << 20));
    if (piece) pieces.push_back(std::move(piece));
    CHECK(device_taken <= kMost);
    CHECK(memory->in_use() <= device_taken);
  }
  std::set<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& one : pieces) ranges.emplace(one->address(), one->address() + one->bytes());
  uint64_t last = 0;
  for (const auto& [begin, end] : ranges) {
    CHECK(begin >= last && begin % ShadowMemory::kAlign == 0);
    last = end;
  }
  pieces.clear();
  CHECK_EQ(memory->in_use(), uint64_t{0});
  CHECK(memory->take(16 << 20) != nullptr);  // what was given back is one piece again
  CHECK(!memory->take(kMost + 1));
  CHECK(!memory->take(0));
}

// Pieces that were taken one by one, as small products take them.
TEST(what_small_products_gave_back_is_there_for_a_large_one) {
  const backend::Table table = table_with_memory(uint64_t{1} << 40);
  const auto memory = std::make_shared<ShadowMemory>(table, uint64_t{64} << 20);
  std::vector<std::shared_ptr<const ShadowMemory::Piece>> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(memory->take(9 << 20));
  for (const auto& one : pieces) CHECK(one != nullptr);
  pieces.clear();
  CHECK(memory->take(40 << 20) != nullptr);
}

TEST(a_device_without_memory_has_no_second_executions) {
  const backend::Table table = table_with_memory(1 << 20);
  const auto memory = std::make_shared<ShadowMemory>(table, uint64_t{1} << 30);
  CHECK(!memory->take(2 << 20));
  CHECK_EQ(memory->in_use(), uint64_t{0});
}

namespace {

struct Seen {
  const void *a, *b, *c;
  void *stream, *workspace;
  int math = -1;
} seen;

backend::Table table_that_sees() {
  backend::Table table{};
  table.cublasCreate_v2 = [](cublasHandle_t* handle) {
    *handle = reinterpret_cast<cublasHandle_t>(0x77);
    return CUBLAS_STATUS_SUCCESS;
  };
  table.cublasSetStream_v2 = [](cublasHandle_t, cudaStream_t stream) {
    seen.stream = stream;
    seen.workspace = nullptr;
    return CUBLAS_STATUS_SUCCESS;
  };
  table.cublasSetWorkspace_v2 = [](cublasHandle_t, void* workspace, size_t) {
    seen.workspace = workspace;
    return CUBLAS_STATUS_SUCCESS;
  };
  table.cublasSetMathMode = [](cublasHandle_t, cublasMath_t mode) {
    seen.math = mode;
    return CUBLAS_STATUS_SUCCESS;
  };
  table.cublasSetPointerMode_v2 = [](cublasHandle_t, cublasPointerMode_t) {
    return CUBLAS_STATUS_SUCCESS;
  };
  table.cublasSgemm_v2 = [](cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int,
                            int, const float* alpha, const float* a, int, const float* b, int,
                            const float*, float* c, int) {
    CHECK_EQ(reinterpret_cast<uint64_t>(handle), uint64_t{0x77});
    CHECK_EQ(m, 3);
    CHECK_EQ(*alpha, 1.f);
    seen.a = a, seen.b = b, seen.c = c;
    return CUBLAS_STATUS_SUCCESS;
  };
  return table;
}

// Of matrices of 3 x 4 and 4 x 5.
cmd::cublasSgemm_v2 a_product() {
  cmd::cublasSgemm_v2 c{};
  c.alpha.low = 0x3f800000;
  c.m = 3, c.n = 5, c.k = 4, c.lda = 3, c.ldb = 4, c.ldc = 8;
  return c;
}

}  // namespace

TEST(a_product_is_executed_again_with_a_handle_and_places_of_the_servers) {
  cmd::cublasSgemm_v2 c = a_product();
  c.handle.handle = 7, c.handle.stream = 1, c.handle.math_mode = 2;
  c.handle.workspace = 0x9000, c.handle.workspace_bytes = 4096;
  c.A = 0x1000, c.B = 0x2000, c.C = 0x3000;
  EntryHeader header{};
  header.call = static_cast<uint16_t>(Call::cublasSgemm_v2);
  const Body body = std::as_bytes(std::span(&c, 1));
  dmr::Product product;
  CHECK(dmr::read_product(header, body, &product) == dmr::Reading::kProduct);
  dmr::Places places = dmr::places_of(product);
  CHECK_EQ(places.inputs[1], uint64_t{0x2000});
  CHECK_EQ(places.output, uint64_t{0x3000});
  CHECK_EQ(dmr::workspace_bytes(header, body), uint64_t{4096});
  places.inputs[0] = 0x5000, places.output = 0x6000, places.workspace = 0x7000;
  const backend::Table table = table_that_sees();
  dmr::Again again(table);
  auto* const stream = reinterpret_cast<CUstream>(0x55);
  CHECK_EQ(again.execute(header, body, product, places, stream), 0);
  const auto number = [](const void* one) { return reinterpret_cast<uint64_t>(one); };
  CHECK_EQ(number(seen.a), uint64_t{0x5000});
  CHECK_EQ(number(seen.b), uint64_t{0x2000});
  CHECK_EQ(number(seen.c), uint64_t{0x6000});
  CHECK_EQ(number(seen.stream), uint64_t{0x55});
  CHECK_EQ(number(seen.workspace), uint64_t{0x7000});
  CHECK_EQ(seen.math, 2);
  header.call = static_cast<uint16_t>(Call::cublasGemmEx);
  CHECK(again.execute(header, body, product, places, stream) != 0);  // not its command
  header.call = static_cast<uint16_t>(Call::cublasLtMatmul);
  CHECK(again.execute(header, body, product, places, stream) != 0);
}

namespace {

struct Unheard : dmr::SecondExecutions::Hears {
  void executed_again(const dmr::Execution&, const ring::Digest&) override {}
};

}  // namespace

TEST(a_second_execution_at_once_has_a_workspace_as_large_as_the_first) {
  backend::Table table = table_with_memory(ring::kGranule, table_that_sees());
  table.cuMemAddressReserve = [](CUdeviceptr* out, size_t, size_t, CUdeviceptr,
                                 unsigned long long) {
    alignas(ShadowMemory::kAlign) static std::byte memory[ring::kGranule];
    *out = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  };
  OwnServer server(&table);
  Unheard unheard;
  dmr::SecondExecutions::Options options;
  options.memory = ring::kGranule;
  dmr::SecondExecutions second(server.session, nullptr, nullptr, options, unheard);
  cmd::cublasSgemm_v2 c = a_product();
  c.handle.handle = 7, c.handle.workspace = 0x9000, c.handle.workspace_bytes = 4096;
  c.A = 0x1000, c.B = 0x2000, c.C = 0x3000;
  const auto execution = std::make_shared<dmr::Execution>();
  execution->header.call = static_cast<uint16_t>(Call::cublasSgemm_v2);
  const Body body = std::as_bytes(std::span(&c, 1));
  CHECK(dmr::read_product(execution->header, body, &execution->product) == dmr::Reading::kProduct);
  second.plan(execution, body, true);
  CHECK(execution->second.when == dmr::Second::When::kNow);
  seen = {};
  second.follow(execution, nullptr);
  CHECK(execution->second.compared.load());
  const auto number = [](const void* one) { return reinterpret_cast<uint64_t>(one); };
  CHECK(seen.workspace != nullptr);
  CHECK_EQ(number(seen.workspace), execution->second.places.workspace);
  CHECK(number(seen.workspace) >= number(seen.c) + execution->product.output.extent());
  CHECK(number(seen.workspace) + 4096 <=
        execution->second.piece->address() + execution->second.piece->bytes());
}

TEST(a_second_execution_has_the_modes_of_the_first_though_the_handle_is_new) {
  backend::Table table = table_that_sees();
  static int atomics;
  table.cublasSetAtomicsMode = [](cublasHandle_t, cublasAtomicsMode_t mode) {
    atomics = mode;
    return CUBLAS_STATUS_SUCCESS;
  };
  cmd::cublasSgemm_v2 c = a_product();
  c.handle.atomics_mode = CUBLAS_ATOMICS_NOT_ALLOWED;
  EntryHeader header{};
  header.call = static_cast<uint16_t>(Call::cublasSgemm_v2);
  const Body body = std::as_bytes(std::span(&c, 1));
  dmr::Product product;
  CHECK(dmr::read_product(header, body, &product) == dmr::Reading::kProduct);
  atomics = CUBLAS_ATOMICS_ALLOWED;  // what a new handle has
  dmr::Again again(table);
  CHECK_EQ(again.execute(header, body, product, dmr::places_of(product), nullptr), 0);
  CHECK_EQ(atomics, int{CUBLAS_ATOMICS_NOT_ALLOWED});
}

CHECK_MAIN
