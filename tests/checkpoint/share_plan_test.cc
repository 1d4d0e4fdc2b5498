// What a server reads of the agent's plan: all of it or nothing, and no row that cannot be.
#include "checkpoint/store/share_plan.h"

#include <sys/mman.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <vector>

#include "check.h"

namespace {

using namespace pyft;  // NOLINT: a test
using checkpoint::SharePlan;

constexpr uint64_t kPage = ring::kPageBytes;

// A store's first page, and its shares in the next one.
struct Store {
  Store()
      : at(static_cast<std::byte*>(
            mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        header(*reinterpret_cast<ring::StoreHeader*>(at)) {
    header.shares_offset = header.shares_bytes = kPage;
  }
  ~Store() { munmap(at, 2 * kPage); }
  Store(const Store&) = delete;
  void write(const std::vector<ring::SharedBlock>& rows, uint64_t version) const {
    if (!rows.empty()) std::memcpy(at + kPage, rows.data(), rows.size() * sizeof rows[0]);
    header.shares_rows = rows.size();
    header.shares_version = version;
  }
  std::byte* const at;
  ring::StoreHeader& header;
};

using Owner = std::optional<uint64_t>;

TEST(a_block_is_left_to_another_member_as_the_agent_has_written_it) {
  const Store store;
  SharePlan plan;
  store.write({{0x1000, 64, 3}, {0x2000, 128, 0}}, 2);
  CHECK(plan.owner({0x1000, 64}) == Owner());
  plan.update(store.at, store.header);
  CHECK(plan.owner({0x1000, 64}) == Owner(3));
  CHECK(plan.owner({0x2000, 128}) == Owner(0));
  CHECK(plan.owner({0x2000, 127}) == Owner());  // another block
  CHECK(plan.owner({0x3000, 64}) == Owner());
}

TEST(what_a_new_plan_does_not_name_is_kept_here) {
  const Store store;
  SharePlan plan;
  store.write({{0x1000, 64, 3}, {0x2000, 128, 4}}, 2);
  plan.update(store.at, store.header);
  store.write({{0x2000, 128, 5}}, 4);
  plan.update(store.at, store.header);
  CHECK(plan.owner({0x1000, 64}) == Owner());
  CHECK(plan.owner({0x2000, 128}) == Owner(5));
  store.write({}, 6);
  plan.update(store.at, store.header);
  CHECK(plan.owner({0x2000, 128}) == Owner());
}

TEST(rows_that_are_being_written_are_not_read) {
  const Store store;
  SharePlan plan;
  store.write({{0x1000, 64, 3}}, 2);
  plan.update(store.at, store.header);
  store.write({{0x1000, 64, 4}}, 3);
  plan.update(store.at, store.header);
  CHECK(plan.owner({0x1000, 64}) == Owner(3));
  store.write({{0x1000, 64, 5}}, 2);  // nor are those that have been read already
  plan.update(store.at, store.header);
  CHECK(plan.owner({0x1000, 64}) == Owner(3));
}

TEST(no_member_has_such_a_number) {
  const Store store;
  SharePlan plan;
  const uint64_t most = ring::kElsewhere - 1;
  store.write({{0x1000, 64, ring::kElsewhere}, {0x2000, 64, ~uint64_t{0}}, {0x3000, 64, most}}, 2);
  plan.update(store.at, store.header);
  CHECK(plan.owner({0x1000, 64}) == Owner());
  CHECK(plan.owner({0x2000, 64}) == Owner());
  CHECK(plan.owner({0x3000, 64}) == Owner(most));
}

TEST(no_more_rows_are_read_than_the_area_has) {
  const Store store;
  SharePlan plan;
  constexpr uint64_t kRows = kPage / sizeof(ring::SharedBlock);
  std::vector<ring::SharedBlock> rows;
  for (uint64_t row = 0; row < kRows; ++row) rows.push_back({row, 64, row});
  store.write(rows, 2);
  store.header.shares_rows = ~uint64_t{0};
  plan.update(store.at, store.header);
  CHECK(plan.owner({kRows - 1, 64}) == Owner(kRows - 1));
}

const Store* changes = nullptr;

// The agent begins with the next plan when the rows are read: they lie in memory that is not there.
void begin_next(int) {
  changes->header.shares_version = 3;
  mprotect(changes->at + kPage, kPage, PROT_READ | PROT_WRITE);
}

TEST(rows_that_change_while_they_are_read_are_none) {
  const Store store;
  SharePlan plan;
  store.write({{0x1000, 64, 3}}, 2);
  changes = &store;
  CHECK(std::signal(SIGSEGV, begin_next) == SIG_DFL);
  mprotect(store.at + kPage, kPage, PROT_NONE);
  plan.update(store.at, store.header);
  std::signal(SIGSEGV, SIG_DFL);
  CHECK_EQ(store.header.shares_version.load(), 3u);
  CHECK(plan.owner({0x1000, 64}) == Owner());
  store.header.shares_version = 2;  // what was not taken is looked at again
  plan.update(store.at, store.header);
  CHECK(plan.owner({0x1000, 64}) == Owner(3));
}

}  // namespace

CHECK_MAIN
