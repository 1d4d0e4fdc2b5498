// Products and copies that are wrong on request, and memory that rots.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <bit>
#include <cstring>
#include <set>
#include <vector>

#include "check.h"
#include "injection.h"
#include "softgpu_again.h"

namespace {

cublasHandle_t handle() {
  static cublasHandle_t made = [] {
    cublasHandle_t h;
    CHECK_EQ(cublasCreate(&h), CUBLAS_STATUS_SUCCESS);
    return h;
  }();
  return made;
}

// 70 x 3 = (70 x 4)(4 x 3) of ones: all elements are 4.
struct Product {
  static constexpr int kRows = 70, kColumns = 3;
  float *a = zeros<float>(kRows * 4), *b = zeros<float>(12);
  float* c = zeros<float>(kRows * kColumns);
  Product() {
    for (int i = 0; i < kRows * 4; ++i) a[i] = 1;
    for (int i = 0; i < 12; ++i) b[i] = 1;
  }
  // Elements that are not 4, as number and value.
  std::vector<std::pair<int, float>> run() const {
    const float one = 1, zero = 0;
    CHECK_EQ(cublasSgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, kRows, kColumns, 4, &one, a, kRows, b,
                         4, &zero, c, kRows),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<std::pair<int, float>> found;
    for (int i = 0; i < kRows * kColumns; ++i) {
      if (c[i] != 4) found.emplace_back(i, c[i]);
    }
    return found;
  }
};

using Found = std::vector<std::pair<int, float>>;

}  // namespace

TEST(a_chosen_accumulator_of_a_product) {
  const Product product;
  // After two products it holds 2.0, whose sign goes: -2 + 2 at the end.
  CHECK_EQ(inject("upset,row=68,column=2,after=2,bit=31"), std::string());
  CHECK((product.run() == Found{{68 + 2 * 70, 0.f}}));
  CHECK_EQ(missed(), std::string());
  CHECK(product.run().empty());
}

TEST(each_element_of_a_product_can_be_drawn) {
  const Product product;
  std::set<int> elements;
  for (int seed = 0; seed < 400; ++seed) {
    const std::string request = "upset,kernel=cublas,model=word,seed=" + std::to_string(seed);
    CHECK_EQ(inject(request), std::string());
    const Found found = product.run();
    CHECK_EQ(missed(), std::string());
    CHECK(found.size() <= 1);
    for (const auto& [element, value] : found) elements.insert(element);
    CHECK_EQ(inject(request), std::string());
    const Found again = product.run();
    CHECK(again.size() == found.size());
    // By bits: a NaN is unequal to itself.
    CHECK(found.empty() ||
          (found[0].first == again[0].first &&
           std::bit_cast<uint32_t>(found[0].second) == std::bit_cast<uint32_t>(again[0].second)));
    CHECK_EQ(missed(), std::string());
  }
  CHECK(elements.size() > 150 && elements.size() <= 210);
}

TEST(an_upset_waits_for_a_product_that_can_have_it) {
  const Product product;
  const float two = 2;
  CHECK_EQ(inject("upset,row=70,column=0"), std::string());
  CHECK(product.run().empty());
  CHECK_EQ(cublasSscal(handle(), 4, &two, product.b, 1), CUBLAS_STATUS_SUCCESS);
  CHECK(missed().find("of [2] launches none could have it") != std::string::npos);
}

TEST(a_stuck_bit_hits_the_tiles_of_its_multiprocessor) {
  const Product product;
  // Rows 0 to 63 are the first tile, the others the second: SM 1's. 4.0 with its lowest bit.
  CHECK_EQ(inject("stuck,sm=1,unit=fma,lane=2,bit=0,to=1"), std::string());
  const float wrong = std::bit_cast<float>(std::bit_cast<uint32_t>(4.f) | 1);
  const Found expected{{66, wrong}, {136, wrong}, {206, wrong}};
  CHECK((product.run() == expected));
  CHECK((product.run() == expected));  // it lasts
  CHECK_EQ(inject("clear"), std::string());
  CHECK(product.run().empty());
  CHECK_EQ(inject("stuck,sm=1,unit=tensor,lane=2,bit=0,to=1"), std::string());
  CHECK(product.run().empty());
  CHECK(missed().find("[1] launches none could have it") != std::string::npos);
}

namespace {

// The same for the second time, so many SMs further on.
Found again(const Product& product, unsigned places) {
  softgpu_execute_again(1, places);
  Found found = product.run();
  softgpu_execute_again(0, 0);
  return found;
}

}  // namespace

TEST(a_second_execution_is_no_launch_to_requests_for_faults) {
  const Product product;
  softgpu_state before, after;
  CHECK_EQ(softgpu_device_state(0, &before), 0);
  CHECK_EQ(inject("upset,row=1,column=0,after=1,bit=31,in=1"), std::string());
  CHECK(again(product, 0).empty());
  CHECK_EQ(inject("flip,result=random,seed=3,kernel=cublas"), std::string());
  CHECK(again(product, 0).empty());
  CHECK_EQ(softgpu_device_state(0, &after), 0);
  CHECK_EQ(after.launches, before.launches);
  CHECK(!product.run().empty());  // both
  CHECK_EQ(missed(), std::string());
}

TEST(a_second_execution_elsewhere_shows_a_stuck_bit) {
  const Product product;
  CHECK_EQ(inject("stuck,sm=1,unit=fma,lane=2,bit=0,to=1"), std::string());
  const Found first = product.run();
  CHECK(!first.empty());
  CHECK(again(product, 0) == first);  // it errs alike
  const Found moved = again(product, 1);
  CHECK(moved != first);
  // The first tile runs where the second one did: rows 0 to 63.
  const float wrong = std::bit_cast<float>(std::bit_cast<uint32_t>(4.f) | 1);
  CHECK((moved ==
         Found{{2, wrong}, {34, wrong}, {72, wrong}, {104, wrong}, {142, wrong}, {174, wrong}}));
  CHECK(product.run() == first);
  CHECK_EQ(inject("clear"), std::string());
}

TEST(the_nth_copy_is_wrong_in_one_bit) {
  auto* to = zeros<uint8_t>(640);
  const std::vector<uint8_t> from(640, 0x55);
  const auto copy = [&] {
    // Rows of 16 bytes in lines of 64.
    CHECK_EQ(cudaMemcpy2D(to, 64, from.data(), 16, 16, 10, cudaMemcpyHostToDevice), cudaSuccess);
    std::vector<int> wrong;
    for (int i = 0; i < 640; ++i) {
      if (to[i] != (i % 64 < 16 ? 0x55 : 0)) wrong.push_back(i);
    }
    return wrong;
  };
  CHECK_EQ(inject("copy,in=2,byte=33,bit=1"), std::string());
  CHECK(copy().empty());
  CHECK((copy() == std::vector<int>{2 * 64 + 1}));
  CHECK_EQ(static_cast<int>(to[129]), 0x57);
  CHECK(copy().empty());
  CHECK_EQ(missed(), std::string());
  std::set<int> bytes;
  for (int seed = 0; seed < 300; ++seed) {
    CHECK_EQ(inject("copy,device=0,seed=" + std::to_string(seed)), std::string());
    const std::vector<int> wrong = copy();
    CHECK_EQ(wrong.size(), size_t{1});
    for (const int byte : wrong) bytes.insert(byte);
    CHECK_EQ(missed(), std::string());
  }
  CHECK(bytes.size() > 80);
  CHECK_EQ(inject("copy,device=1"), std::string());
  CHECK(copy().empty());
  CHECK(missed().find("[0] copies on device [1] came") != std::string::npos);
}

TEST(memory_rots_anywhere_in_what_is_allocated) {
  constexpr size_t kBytes = 2 << 20;  // a granule
  auto* memory = zeros<uint8_t>(kBytes);
  auto* other = zeros<uint8_t>(kBytes);
  int hits = 0;
  for (int seed = 0; seed < 20; ++seed) {
    CHECK_EQ(inject("flip,live=random,seed=" + std::to_string(seed)), std::string());
    for (auto* place : {memory, other}) {
      for (size_t i = 0; i < kBytes; ++i) {
        hits += std::popcount(place[i]);
        place[i] = 0;
      }
    }
  }
  CHECK(hits > 12 && hits <= 20);  // little else is allocated
}

TEST(bad_requests_say_what_is_wrong) {
  const auto wrong = [](const std::string& request, const std::string& what) {
    CHECK_EQ(inject(request), "the fault [" + request + "] is not understood: " + what);
  };
  wrong("upset,model=half", "[model] is [half], none of [single, double, byte, word, zero, stale]");
  wrong("upset,bit=32", "[bit] is [32], not a whole number from [0] to [31]");
  wrong("upset,mask=0", "[mask] is [0], not a whole number from [1] to [4294967295]");
  wrong("upset,result=1", "[result] is no setting of it");
  wrong("stuck,unit=fpu,lane=1", "[unit] is [fpu], none of [alu, fma, mufu, lsu, tensor]");
  wrong("stuck,unit=fma", "it needs a [lane]");
  wrong("copy,kernel=x", "[kernel] is no setting of it");
  wrong("flip,live=all", "[live] is [all], not [random]");
}

CHECK_MAIN
