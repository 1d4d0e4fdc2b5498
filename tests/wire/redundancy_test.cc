// Which products are the same by content, what they read and write, and pairs of executions.
#include "check.h"
#include "server/dmr/pairs.h"
#include "server/dmr/products.h"
#include "server/dmr/votes.h"

// Behind the names of calls, some of which these redefine.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstring>

namespace {

using namespace pyft;          // NOLINT: a test
using namespace pyft::server;  // NOLINT
using dmr::Product;
using dmr::Reading;

constexpr uint64_t kOne = 0x3f800000;

template <class Bytes>
Reading read(Call call, const Bytes& bytes, Product* product) {
  ring::EntryHeader header{};
  header.call = static_cast<uint16_t>(call);
  return dmr::read_product(header, std::as_bytes(std::span(&bytes, 1)), product);
}

// 3 x 5 = (3 x 4)(4 x 5), with lines between the columns of the result.
cmd::cublasSgemm_v2 sgemm() {
  cmd::cublasSgemm_v2 c{};
  c.handle.handle = 7, c.handle.stream = 1, c.handle.workspace = 0x9000;
  c.handle.workspace_bytes = 4096;
  c.alpha.low = kOne;
  c.A = 0x1000, c.B = 0x2000, c.C = 0x3000;
  c.m = 3, c.n = 5, c.k = 4;
  c.lda = 3, c.ldb = 4, c.ldc = 8;
  return c;
}

Product of(const cmd::cublasSgemm_v2& c) {
  Product product;
  CHECK(read(Call::cublasSgemm_v2, c, &product) == Reading::kProduct);
  return product;
}

}  // namespace

TEST(what_a_product_reads_and_writes) {
  const Product p = of(sgemm());
  CHECK_EQ(p.input_count, size_t{2});
  CHECK_EQ(p.inputs[0].extent(), uint64_t{3 * 4 * 4});
  CHECK_EQ(p.inputs[1].extent(), uint64_t{4 * 5 * 4});
  CHECK_EQ(p.output.address, uint64_t{0x3000});
  CHECK_EQ(p.output.bytes, uint64_t{12});
  CHECK_EQ(p.output.extent(), uint64_t{4 * 8 * 4 + 12});
  CHECK_EQ(p.flops(), uint64_t{2 * 3 * 4 * 5});
  cmd::cublasSgemm_v2 adds = sgemm();
  adds.beta.low = kOne;
  CHECK_EQ(of(adds).input_count, size_t{3});
}

TEST(addresses_handles_and_workspaces_are_not_part_of_it_all_else_is) {
  const Product p = of(sgemm());
  cmd::cublasSgemm_v2 c = sgemm();
  c.handle.handle = 8, c.handle.stream = 2, c.handle.workspace = 0xa000;
  c.A = 0x4000, c.B = 0x5000, c.C = 0x6000;
  CHECK(of(c).arguments == p.arguments);
  c.handle.workspace_bytes = 8192;
  CHECK(of(c).arguments != p.arguments);
  c = sgemm();
  c.alpha.low = kOne + 1;
  CHECK(of(c).arguments != p.arguments);
  c = sgemm();
  c.transa = CUBLAS_OP_T, c.lda = 4;
  CHECK(of(c).arguments != p.arguments);
  CHECK_EQ(of(c).inputs[0].columns, uint64_t{3});
}

TEST(numbers_that_make_no_matrix_are_opaque) {
  const auto opaque = [](auto change) {
    cmd::cublasSgemm_v2 c = sgemm();
    change(&c);
    Product product;
    CHECK(read(Call::cublasSgemm_v2, c, &product) == Reading::kOpaque);
  };
  opaque([](auto* c) { c->m = -1; });
  opaque([](auto* c) { c->k = 0; });
  opaque([](auto* c) { c->ldc = 2; });
  opaque([](auto* c) { c->handle.pointer_mode = CUBLAS_POINTER_MODE_DEVICE; });
  cmd::cublasSgemmStridedBatched b{};
  b.m = b.n = b.k = b.lda = b.ldb = b.ldc = 1 << 30;
  b.batchCount = INT32_MAX;
  b.strideA = b.strideB = b.strideC = int64_t{1} << 39;
  Product product;
  CHECK(read(Call::cublasSgemmStridedBatched, b, &product) == Reading::kOpaque);
  const uint32_t little = 0;
  CHECK(read(Call::cublasSgemm_v2, little, &product) == Reading::kOther);
  CHECK(read(Call::cublasDgemm_v2, sgemm(), &product) == Reading::kOpaque);
  CHECK(read(Call::cublasSaxpy_v2, sgemm(), &product) == Reading::kOther);
}

namespace {

struct Light {
  cmd::cublasLtMatmul command{};
  LtProblem problem{};
};

template <class T>
void set(LtMatmulDesc* desc, uint32_t id, T value) {
  desc->given |= uint64_t{1} << id;
  std::memcpy(desc->values + lt_attribute(id).offset, &value, sizeof value);
}

Light light() {
  Light l;
  l.command.a = 0x1000, l.command.b = 0x2000, l.command.c = l.command.d = 0x3000;
  l.command.alpha_low = kOne;
  l.problem.a.rows = 3, l.problem.a.cols = l.problem.b.rows = 4, l.problem.b.cols = 5;
  l.problem.d.rows = 3, l.problem.d.cols = 5;
  l.problem.a.ld = l.problem.d.ld = 3, l.problem.b.ld = 4;
  l.problem.c = l.problem.d;
  for (LtLayout* one : {&l.problem.a, &l.problem.b, &l.problem.c, &l.problem.d})
    one->type = CUDA_R_32F;
  set(&l.problem.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
  set(&l.problem.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uint64_t{0x7000});
  return l;
}

}  // namespace

TEST(a_bias_is_read_and_its_place_is_not_part_of_it) {
  Product first, second;
  CHECK(read(Call::cublasLtMatmul, light(), &first) == Reading::kProduct);
  CHECK_EQ(first.input_count, size_t{3});
  CHECK_EQ(first.inputs[2].address, uint64_t{0x7000});
  CHECK_EQ(first.inputs[2].extent(), uint64_t{12});
  CHECK_EQ(first.k, int64_t{4});
  Light elsewhere = light();
  elsewhere.command.d = 0x8000;
  set(&elsewhere.problem.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uint64_t{0x9000});
  CHECK(read(Call::cublasLtMatmul, elsewhere, &second) == Reading::kProduct);
  CHECK(first.arguments == second.arguments);
  Light other = light();  // keeps what the activation was given: a second result
  set(&other.problem.desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
      uint32_t{CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
  CHECK(read(Call::cublasLtMatmul, other, &second) == Reading::kOpaque);
  other = light();
  set(&other.problem.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, uint64_t{0x7000});
  CHECK(read(Call::cublasLtMatmul, other, &second) == Reading::kOpaque);
}

TEST(pairs) {
  using Found = dmr::Pairs::Found;
  dmr::Pairs pairs;
  const ring::Digest a{1, 0}, b{2, 0}, right{3, 3}, wrong{3, 2};
  CHECK(pairs.add(a, right, 10).found == Found::kFirst);
  CHECK(pairs.add(b, right, 11).found == Found::kFirst);
  const dmr::Pairs::Outcome mismatch = pairs.add(a, wrong, 20);
  CHECK(mismatch.found == Found::kMismatch);
  CHECK_EQ(mismatch.first_seq, uint64_t{10});
  CHECK(mismatch.first_outputs == right);
  CHECK(pairs.add(b, right, 21).found == Found::kEqual);
  CHECK(pairs.add(b, wrong, 22).found == Found::kFirst);  // a pair is forgotten
  for (uint64_t i = 0; i < dmr::Pairs::kMost - 1; ++i)
    CHECK(pairs.add({i, 9}, right, i).found == Found::kFirst);
  CHECK(pairs.add({0, 10}, right, 1).found == Found::kForgotten);
}

namespace {

using dmr::Dispute;
using dmr::Votes;
using ring::msg::Culprit;

const ring::Digest in{1, 0}, other_in{2, 0}, a{3, 3}, b{3, 2}, c{5, 5};

bool was_wrong(const std::vector<Votes::Said>& said) {
  return !said.empty() && said[0].was_wrong;
}

std::optional<Culprit> culprit(const std::vector<Votes::Said>& said) {
  return said.empty() ? std::nullopt : said[0].culprit;
}

}  // namespace

TEST(a_third_execution_says_which_was_wrong) {
  const Dispute dispute{10, 20, 25, in, a, b};
  const struct {
    ring::Digest in, first, second;
    bool told_wrong;
    std::optional<Culprit> culprit;
  } cases[] = {
      {in, b, b, true, Culprit::kFirst}, {in, a, a, false, Culprit::kSecond},
      {in, c, c, true, Culprit::kBoth},  {other_in, b, b, false, Culprit::kUnknown},
      {in, b, a, true, std::nullopt},  // a mismatch again
  };
  for (const auto& one : cases) {
    Votes votes({dispute});
    CHECK(votes.add(9, one.in, one.first).empty());
    const std::vector<Votes::Said> first = votes.add(10, one.in, one.first);
    CHECK_EQ(was_wrong(first), one.told_wrong);
    if (was_wrong(first)) CHECK_EQ(first[0].dispute->last, uint64_t{25});
    CHECK(!culprit(first));
    CHECK(culprit(votes.add(20, one.in, one.second)) == one.culprit);
    CHECK(votes.add(20, one.in, one.second).empty());  // once
  }
}

TEST(streams_may_execute_the_second_one_first) {
  Votes votes({{10, 20, 25, in, a, b}});
  CHECK(votes.add(20, in, b).empty());
  const std::vector<Votes::Said> said = votes.add(10, in, b);
  CHECK(was_wrong(said));
  CHECK(culprit(said) == Culprit::kFirst);
}

TEST(inputs_of_the_second_one_count_as_well) {
  Votes votes({{10, 20, 25, in, a, b}});
  CHECK(votes.add(10, in, a).empty());
  CHECK(culprit(votes.add(20, other_in, a)) == Culprit::kUnknown);
}

TEST(one_entry_that_the_server_has_executed_again) {
  const Dispute dispute{10, 10, 25, in, a, b};
  Votes votes({dispute, {20, 30, 35, in, a, b}});
  CHECK(votes.wants_again(10));
  CHECK(!votes.wants_again(20) && !votes.wants_again(30));
  CHECK(votes.add(20, in, b, true).empty());  // of two entries no server's own has a say
  const std::vector<Votes::Said> first = votes.add(10, in, b);
  CHECK(was_wrong(first) && !culprit(first));
  CHECK(votes.wants_again(10));
  CHECK(culprit(votes.add(10, in, b, true)) == Culprit::kFirst);
  CHECK(!votes.wants_again(10));
  Votes second({dispute});
  CHECK(second.add(10, in, a).empty());
  CHECK(culprit(second.add(10, in, a, true)) == Culprit::kSecond);
  Votes differ({dispute});
  differ.add(10, in, b);
  CHECK(!culprit(differ.add(10, in, a, true)));  // a mismatch again
}

TEST(each_server_before_may_have_told_something_wrong) {
  // The first server had a wrong first execution, its replacement had another wrong one.
  Votes votes({{10, 20, 25, in, a, b}, {10, 20, 29, in, c, b}});
  const std::vector<Votes::Said> first = votes.add(10, in, b);
  CHECK_EQ(first.size(), size_t{2});
  CHECK(first[0].was_wrong && first[1].was_wrong);
  CHECK_EQ(first[1].dispute->last, uint64_t{29});
  const std::vector<Votes::Said> second = votes.add(20, in, b);
  CHECK_EQ(second.size(), size_t{1});  // of the one that was found last
  CHECK_EQ(second[0].dispute->last, uint64_t{29});
  CHECK(second[0].culprit == Culprit::kFirst);
}

TEST(an_entry_of_two_disputes) {
  Votes votes({{10, 20, 25, in, a, b}, {20, 30, 35, in, a, b}});
  CHECK(was_wrong(votes.add(10, in, b)));
  const std::vector<Votes::Said> said = votes.add(20, in, b);
  CHECK_EQ(said.size(), size_t{2});
  CHECK(said[0].culprit == Culprit::kFirst);
  CHECK(said[1].was_wrong);
  CHECK(culprit(votes.add(30, in, b)) == Culprit::kFirst);
}

TEST(disputes_travel_as_text) {
  const std::string digest(31, '0'),
      text = "10,20,25," + digest + "1," + digest + "2," + digest + "3";
  const auto two = dmr::read_disputes(text + ";" + text);
  CHECK(two.has_value());
  CHECK_EQ(two->size(), size_t{2});
  CHECK_EQ((*two)[1].first, uint64_t{10});
  CHECK_EQ((*two)[1].last, uint64_t{25});
  CHECK(((*two)[1].second_outputs == ring::Digest{0, 3}));
  CHECK(dmr::read_disputes("")->empty());
  for (const std::string& damaged : {text.substr(1, text.size() - 2), text + ",", "x" + text,
                                     std::string("1,2"), text.substr(0, 9) + text.substr(10)})
    CHECK(!dmr::read_disputes(damaged));
}

CHECK_MAIN
