// Blocks on several threads: which may touch which line, what is put back, the order of blocks.
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <set>
#include <vector>

#include "check.h"
#include "exec/dispatch.h"
#include "exec/team.h"
#include "exec/track.h"

namespace softgpu::exec {
namespace {

constexpr uint64_t kDevice = 0x7f'0000'0000 + 0x1800'0000'0000;  // in device memory, far from all

// Two threads of one attempt, and 4 KiB of device memory.
struct Two {
  Marks* marks;
  uint8_t* memory;
  Tracker first, second;
  Two() : marks(shared_marks()) {
    void* p = mmap(reinterpret_cast<void*>(kDevice), 4096, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(p == reinterpret_cast<void*>(kDevice));
    memory = static_cast<uint8_t*>(p);
    next();
  }
  ~Two() { munmap(memory, 4096); }
  void next() {
    const uint32_t attempt = marks->next_attempt();
    first.begin(marks, attempt, 0);
    second.begin(marks, attempt, 1);
  }
  static Marks* shared_marks() {
    static const auto one = std::make_unique<Marks>();
    return one.get();
  }
};

TEST(readers_share_a_line) {
  Two t;
  CHECK(t.first.read(kDevice, 128) && t.second.read(kDevice, 128) && t.first.read(kDevice, 4));
  CHECK(!t.first.write(kDevice, 4));
  CHECK(!t.second.write(kDevice + 64, 4));
}

TEST(a_written_line_belongs_to_its_writer) {
  Two t;
  CHECK(t.first.read(kDevice, 4) && t.first.write(kDevice, 4));
  CHECK(t.first.read(kDevice, 4) && t.first.write(kDevice, 64));
  CHECK(!t.second.read(kDevice + 60, 4));
  CHECK(!t.second.write(kDevice + 60, 4));
  CHECK(t.second.write(kDevice + 64, 4));
  CHECK(!t.first.read(kDevice + 60, 8));
}

TEST(a_new_attempt_knows_nothing_of_the_last) {
  Two t;
  CHECK(t.first.write(kDevice, 64) && t.second.read(kDevice + 64, 64));
  t.next();
  CHECK(t.second.write(kDevice, 128));
}

TEST(scattered_lanes_are_seen_one_by_one) {
  Two t;
  Row offsets{};
  for (uint32_t i = 0; i < 32; ++i) offsets.lane[i] = i * 100;
  CHECK(t.first.write(kDevice + 3100, 4));
  CHECK(t.second.write_each(kDevice, offsets, kFull >> 1));
  CHECK(!t.second.write_each(kDevice, offsets, kFull));
  CHECK(!t.second.read_each(kDevice, offsets, 1u << 31));
}

TEST(undo_puts_back_what_was_there) {
  Two t;
  std::memset(t.memory, 7, 4096);
  CHECK(t.first.write(kDevice + 4, 4) && t.second.write(kDevice + 64, 192));
  CHECK(t.first.lines_written() == 1 && t.second.lines_written() == 3);
  std::memset(t.memory + 4, 1, 4);
  std::memset(t.memory + 64, 2, 192);
  t.first.undo();
  CHECK(t.memory[4] == 7 && t.memory[64] == 2);
  t.second.undo();
  for (int i = 0; i < 4096; ++i) CHECK(t.memory[i] == 7);
}

TEST(memory_of_the_program_is_not_written_side_by_side) {
  Two t;
  alignas(64) static uint8_t host[64];
  const auto address = reinterpret_cast<uint64_t>(host);
  CHECK(t.first.read(address, 4) && t.second.read(address, 4));
  CHECK(!t.first.write(address, 4));
}

TEST(an_order_has_every_block_once_and_near_its_place) {
  for (const uint64_t count : {1u, 255u, 256u, 257u, 1000u}) {
    const Order natural(count, 0), shuffled(count, 3), other(count, 4);
    std::set<uint64_t> seen;
    bool moved = false, differs = false;
    for (uint64_t i = 0; i < count; ++i) {
      CHECK(natural.at(i) == i);
      const uint64_t block = shuffled.at(i);
      CHECK(block < count && block / Order::kWindow == i / Order::kWindow);
      seen.insert(block);
      moved |= block != i;
      differs |= block != other.at(i);
    }
    CHECK(seen.size() == count);
    CHECK(count == 1 || (moved && differs));
  }
}

TEST(a_team_shares_work_and_comes_back) {
  static const auto team = std::make_unique<Team>().release();  // its threads never end
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> left{64}, done{0};
    team->run(1 + static_cast<uint32_t>(round % 4), [&](uint32_t) {
      while (left.fetch_sub(1) > 0) ++done;
    });
    CHECK(done == 64);
  }
}

}  // namespace
}  // namespace softgpu::exec

CHECK_MAIN
