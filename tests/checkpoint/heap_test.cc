// The store's heap: where room is taken and how it comes together again, and which pages are there.
#include "checkpoint/store/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "check.h"
#include "checkpoint/throttle.h"
#include "fuzz.h"
#include "pyft/unique_fd.h"

namespace {

uint64_t touched = 0;  // for the first time, so far

}  // namespace

// Instead of that which takes its time.
void pyft::checkpoint::throttle_new(uint64_t bytes) {
  touched += bytes;
}

namespace {

using pyft::checkpoint::Heap;

constexpr uint64_t kUnit = Heap::kAlign;
constexpr uint64_t kMb = uint64_t{1} << 20;
constexpr uint64_t kBefore = 4 * kMb;  // what the object has before the heap

struct Object {
  explicit Object(uint64_t bytes) : fd(memfd_create("heap", MFD_CLOEXEC)), heap(kBefore + bytes) {
    CHECK_EQ(ftruncate(fd.get(), static_cast<off_t>(heap)), 0);
  }
  uint64_t pages() const {
    struct stat status{};
    fstat(fd.get(), &status);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }
  // Gives these bytes of the heap back to the machine; what is there elsewhere stays.
  void punch(uint64_t begin, uint64_t bytes) const {
    CHECK_EQ(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(kBefore + begin), static_cast<off_t>(bytes)),
             0);
  }
  pyft::UniqueFd fd;
  uint64_t heap;
};

// What a heap has to do, by looking at each unit.
struct Model {
  explicit Model(uint64_t units) : taken(units) {}
  uint64_t take(uint64_t units) const {
    uint64_t best = Heap::kNone, best_size = Heap::kNone;
    for (uint64_t begin = 0, end = 0; begin < taken.size(); begin = end + 1) {
      for (end = begin; end < taken.size() && !taken[end];) ++end;
      if (end - begin >= units && end - begin < best_size) best = begin, best_size = end - begin;
    }
    return best == Heap::kNone ? best : best * kUnit;
  }
  void set(uint64_t offset, uint64_t units, bool to) {
    for (uint64_t unit = 0; unit < units; ++unit) taken[offset / kUnit + unit] = to;
  }
  uint64_t used() const {
    uint64_t sum = 0;
    for (const bool is_taken : taken) sum += is_taken ? kUnit : 0;
    return sum;
  }
  std::vector<bool> taken;
};

struct Part {
  uint64_t offset, units;
};

// Takes and gives at random, then gives everything: the heap is one part again.
void compare(Heap& heap, Model& model, std::vector<Part> parts, Random& random) {
  for (int round = 0; round < 400; ++round) {
    if (!parts.empty() && random.once_in(2)) {
      std::swap(parts[random.below(parts.size())], parts.back());
      heap.give(parts.back().offset, parts.back().units * kUnit - random.below(kUnit));
      model.set(parts.back().offset, parts.back().units, false);
      parts.pop_back();
    } else {
      const uint64_t units = 1 + random.below(6), wanted = model.take(units);
      CHECK_EQ(heap.take(units * kUnit - random.below(kUnit)), wanted);
      if (wanted == Heap::kNone) continue;
      model.set(wanted, units, true);
      parts.push_back({wanted, units});
    }
    CHECK_EQ(heap.used(), model.used());
  }
  for (const Part& part : parts) heap.give(part.offset, part.units * kUnit);
  CHECK_EQ(heap.used(), 0u);
  CHECK_EQ(heap.take(model.taken.size() * kUnit), 0u);
  CHECK_EQ(heap.take(1), Heap::kNone);
}

TEST(the_smallest_part_that_fits_is_taken_and_parts_that_touch_are_one) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    Random random(seed);
    const uint64_t units = 12 + random.below(30);
    const Object object(units * kUnit);
    Heap heap(object.fd.get(), kBefore, units * kUnit + random.below(kUnit));
    Model model(units);
    compare(heap, model, {}, random);
  }
}

TEST(what_an_earlier_server_has_taken_is_not_given_to_another_content) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    Random random(seed);
    const uint64_t units = 12 + random.below(30);
    const Object object(units * kUnit);
    Heap heap(object.fd.get(), kBefore, units * kUnit);
    Model model(units);
    std::vector<Part> parts;
    for (uint64_t at = random.below(2); at < units; at += random.below(3)) {
      const Part part{at * kUnit, std::min(1 + random.below(3), units - at)};
      heap.take_at(part.offset, part.units * kUnit - random.below(kUnit));
      model.set(part.offset, part.units, true);
      parts.push_back(part);
      at += part.units;
    }
    CHECK_EQ(heap.used(), model.used());
    compare(heap, model, parts, random);
  }
}

TEST(an_empty_content_has_a_place_of_its_own) {
  const Object object(2 * kUnit);
  Heap heap(object.fd.get(), kBefore, 2 * kUnit);
  CHECK_EQ(heap.take(0), 0u);
  CHECK_EQ(heap.take(0), kUnit);
  CHECK_EQ(heap.take(0), Heap::kNone);
}

TEST(without_room_there_is_no_error_of_the_machine) {
  const Object object(kMb);
  Heap heap(object.fd.get(), kBefore, kMb), none(object.fd.get(), kBefore, kUnit - 1);
  for (const uint64_t bytes : {kMb + 1, ~uint64_t{0}, ~uint64_t{0} - kUnit}) {
    errno = ENOMEM;
    CHECK_EQ(heap.take(bytes), Heap::kNone);
    CHECK_EQ(errno, 0);
  }
  CHECK_EQ(none.take(1), Heap::kNone);
  CHECK_EQ(heap.take(kMb), 0u);
}

TEST(where_the_machine_has_no_memory_nothing_is_taken) {
  const Object object(8 * kMb);
  const int only_read =
      open(("/proc/self/fd/" + std::to_string(object.fd.get())).c_str(), O_RDONLY | O_CLOEXEC);
  Heap heap(only_read, kBefore, 8 * kMb);
  CHECK_EQ(heap.take(kMb), Heap::kNone);
  CHECK_EQ(errno, EBADF);
  CHECK_EQ(heap.used(), 0u);
  CHECK_EQ(heap.backed(), 0u);
  CHECK_EQ(dup3(object.fd.get(), only_read, O_CLOEXEC), only_read);  // now there is some
  CHECK_EQ(heap.take(8 * kMb), 0u);
  CHECK_EQ(object.pages(), 8 * kMb);
  close(only_read);
}

TEST(pages_are_there_before_room_is_given) {
  const Object object(7 * kMb);
  Heap heap(object.fd.get(), kBefore, 7 * kMb);
  CHECK_EQ(heap.take(kUnit), 0u);
  CHECK_EQ(heap.backed(), 2 * kMb);
  CHECK_EQ(object.pages(), 2 * kMb);
  CHECK_EQ(heap.take(2 * kMb - kUnit), kUnit);  // to the end of those that are there
  CHECK_EQ(object.pages(), 2 * kMb);
  CHECK_EQ(heap.take(kUnit), 2 * kMb);
  CHECK_EQ(object.pages(), 4 * kMb);
  CHECK_EQ(heap.take(5 * kMb - kUnit), 2 * kMb + kUnit);
  CHECK_EQ(heap.backed(), 7 * kMb);  // not beyond its end
  CHECK_EQ(object.pages(), 7 * kMb);
  object.punch(0, 7 * kMb);
  CHECK_EQ(object.pages(), 0u);  // none lies elsewhere
}

TEST(pages_of_an_earlier_server_are_there_already) {
  const Object object(8 * kMb);
  Heap heap(object.fd.get(), kBefore, 8 * kMb);
  heap.take_at(3 * kMb, kMb + kUnit);
  CHECK_EQ(heap.backed(), 6 * kMb);
  CHECK_EQ(heap.take(3 * kMb), 0u);
  CHECK_EQ(object.pages(), 0u);
  heap.take_at(7 * kMb, kUnit);
  CHECK_EQ(heap.backed(), 8 * kMb);
  Heap small(object.fd.get(), kBefore, 7 * kMb);
  small.take_at(6 * kMb + kUnit, kUnit);
  CHECK_EQ(small.backed(), 7 * kMb);
}

TEST(what_is_touched_for_the_first_time_is_counted) {
  const Object object(200 * kMb);
  Heap heap(object.fd.get(), kBefore, 200 * kMb);
  touched = 0;
  heap.take_at(kMb, kMb);
  CHECK_EQ(touched, 0u);  // an earlier server has
  CHECK_EQ(heap.take(kMb), 0u);
  CHECK_EQ(touched, 0u);
  CHECK_EQ(heap.take(98 * kMb), 2 * kMb);
  CHECK_EQ(touched, 98 * kMb);
  heap.give(2 * kMb, 98 * kMb);
  CHECK_EQ(heap.take(99 * kMb), 2 * kMb);
  CHECK_EQ(touched, 99 * kMb);
  heap.give(2 * kMb, 99 * kMb);
  heap.trim();  // pages that come back are new ones
  CHECK_EQ(heap.backed(), 4 * kMb);
  CHECK_EQ(heap.take(99 * kMb), 2 * kMb);
  CHECK_EQ(touched, 99 * kMb + 97 * kMb);
}

TEST(much_that_is_free_at_the_end_goes_back_to_the_machine) {
  const Object object(200 * kMb);
  Heap heap(object.fd.get(), kBefore, 200 * kMb);
  heap.give(heap.take(62 * kMb), 62 * kMb);
  heap.trim();
  CHECK_EQ(heap.backed(), 62 * kMb);  // which is not much
  heap.give(heap.take(64 * kMb), 64 * kMb);
  heap.trim();
  CHECK_EQ(heap.backed(), 0u);
  CHECK_EQ(object.pages(), 0u);
  CHECK_EQ(heap.take(10 * kMb), 0u);
  heap.give(heap.take(90 * kMb), 90 * kMb);
  heap.trim();  // as much as is in use stays, for the next snapshot
  CHECK_EQ(heap.backed(), 20 * kMb);
  CHECK_EQ(object.pages(), 20 * kMb);
  object.punch(0, 20 * kMb);
  CHECK_EQ(object.pages(), 0u);
}

TEST(pages_behind_what_is_in_use_at_the_end_stay) {
  const Object object(120 * kMb);
  Heap heap(object.fd.get(), kBefore, 120 * kMb);
  CHECK_EQ(heap.take(119 * kMb), 0u);
  CHECK_EQ(heap.take(kMb), 119 * kMb);
  heap.trim();
  CHECK_EQ(heap.backed(), 120 * kMb);  // full
  heap.give(0, 119 * kMb);
  heap.trim();  // what is free does not lie at the end
  CHECK_EQ(heap.backed(), 120 * kMb);
  heap.give(119 * kMb, kMb);
  CHECK_EQ(heap.take(50 * kMb), 0u);
  heap.trim();
  CHECK_EQ(heap.backed(), 100 * kMb);
  CHECK_EQ(heap.take(15 * kMb), 50 * kMb);
  heap.give(50 * kMb, 15 * kMb);
  heap.trim();  // which is not much
  CHECK_EQ(heap.backed(), 100 * kMb);
  heap.give(0, 50 * kMb);
  CHECK_EQ(heap.take(36 * kMb), 0u);
  heap.trim();  // 64 MiB are free, and 72 in all will be in use
  CHECK_EQ(heap.backed(), 72 * kMb);
}

TEST(pages_stay_as_long_as_one_of_the_last_extents_went_so_far) {
  const Object object(200 * kMb);
  Heap heap(object.fd.get(), kBefore, 200 * kMb);
  CHECK_EQ(heap.take(100 * kMb), 0u);
  heap.note_extent();
  heap.give(0, 100 * kMb);
  for (uint64_t later = 1; later < Heap::kRemembered; ++later) {
    heap.note_extent();
    heap.trim();
    CHECK_EQ(heap.backed(), 100 * kMb);
  }
  heap.note_extent();
  heap.trim();
  CHECK_EQ(heap.backed(), 0u);
}

TEST(a_need_beyond_the_pages_that_are_there_gives_none_back) {
  const Object object(300 * kMb);
  Heap heap(object.fd.get(), kBefore, 300 * kMb);
  CHECK_EQ(heap.take(70 * kMb), 0u);
  heap.give(heap.take(64 * kMb), 64 * kMb);
  heap.trim();  // 134 MiB are there, 140 may be needed
  CHECK_EQ(heap.backed(), 134 * kMb);
  CHECK_EQ(object.pages(), 134 * kMb);
}

TEST(a_heap_takes_no_memory_that_the_program_needs) {
  const Object object(600 * kMb);
  uint64_t spare = 20 * kMb, asked = 0;
  Heap heap(object.fd.get(), kBefore, 600 * kMb, [&] { return ++asked, spare; });
  CHECK_EQ(heap.take(10 * kMb), 0u);
  spare = 10 * kMb;
  CHECK_EQ(heap.take(11 * kMb), Heap::kNone);
  CHECK_EQ(errno, ENOMEM);
  CHECK_EQ(object.pages(), 10 * kMb);
  CHECK_EQ(heap.take(10 * kMb), 10 * kMb);  // all that is left
  heap.give(0, 10 * kMb);
  spare = 0;
  CHECK_EQ(heap.take(10 * kMb), 0u);  // pages that are there cost nothing
  CHECK_EQ(asked, 3u);
}

TEST(it_asks_again_after_a_part_of_what_is_left) {
  const Object object(600 * kMb);
  uint64_t spare = 160 * kMb, asked = 0;
  Heap heap(object.fd.get(), kBefore, 600 * kMb, [&] { return ++asked, spare; });
  for (int i = 0; i < 5; ++i) CHECK(heap.take(2 * kMb) != Heap::kNone);
  CHECK_EQ(asked, 1u);  // a sixteenth is 10 MiB
  CHECK(heap.take(2 * kMb) != Heap::kNone);
  CHECK_EQ(asked, 2u);
  spare = uint64_t{1} << 50;
  for (int i = 0; i < 4 + 128; ++i) CHECK(heap.take(2 * kMb) != Heap::kNone);
  CHECK_EQ(asked, 3u);  // never more than 256 MiB
  CHECK(heap.take(2 * kMb) != Heap::kNone);
  CHECK_EQ(asked, 4u);
}

}  // namespace

CHECK_MAIN
