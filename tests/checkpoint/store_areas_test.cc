// How a store is divided, what is checked of one that an earlier server has left, and its tables.
#include "checkpoint/store/store_areas.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "pyft/unique_fd.h"

namespace {

using namespace pyft;  // NOLINT: a test
using checkpoint::check_store;
using checkpoint::format_store;
using checkpoint::page_up;
using checkpoint::StoredSnapshot;

constexpr uint64_t kPage = ring::kPageBytes;
constexpr uint64_t kCommunicators = ring::kMaxCommunicators * sizeof(ring::StoredCommunicator);
constexpr checkpoint::StoreShape kShape = {10 * kPage - 1, 5 * kPage + 1, 7 * kPage, kPage - 100};
constexpr uint64_t kHeap = 300 * kPage;

uint64_t up(uint64_t bytes) {
  return bytes % kPage ? bytes + kPage - bytes % kPage : bytes;
}

// Where the heap begins in a store of that shape.
const uint64_t kBefore = kPage + up(kCommunicators) + (3 * 10 + 6 + 7 + 1) * kPage;

struct Object {
  explicit Object(uint64_t size = kBefore + kHeap)
      : bytes(size), fd(memfd_create("store", MFD_CLOEXEC)) {
    CHECK_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    at = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  }
  Object(const Object&) = delete;
  ~Object() { munmap(at, bytes); }
  ring::StoreHeader& header() const { return *reinterpret_cast<ring::StoreHeader*>(at); }
  std::string format() const { return format_store(at, bytes, fd.get(), kShape); }
  uint64_t bytes;
  UniqueFd fd;
  std::byte* at = nullptr;
};

TEST(a_page_that_is_begun_is_a_whole_one) {
  CHECK_EQ(page_up(0), 0u);
  CHECK_EQ(page_up(1), kPage);
  CHECK_EQ(page_up(kPage), kPage);
  CHECK_EQ(page_up(kPage + 1), 2 * kPage);
}

TEST(areas_follow_one_another_and_the_heap_is_the_rest) {
  const Object object;
  CHECK_EQ(object.format(), "");
  const ring::StoreHeader& header = object.header();
  uint64_t next = kPage;
  const auto comes = [&](uint64_t offset, uint64_t bytes) {
    CHECK_EQ(offset, next);
    next += up(bytes);
  };
  comes(header.communicators_offset, kCommunicators);
  comes(header.manifest_offset[0], kShape.manifest_bytes);
  comes(header.manifest_offset[1], kShape.manifest_bytes);
  comes(header.lent_offset, kShape.manifest_bytes);
  comes(header.shares_offset, header.shares_bytes);
  comes(header.journal_offset, header.journal_bytes);
  comes(header.records_offset, header.records_bytes);
  comes(header.heap_offset, header.heap_bytes);
  CHECK_EQ(next, object.bytes);
  CHECK_EQ(header.shares_bytes, up(kShape.shares_bytes));
  CHECK_EQ(header.journal_bytes, up(kShape.journal_bytes));
  CHECK_EQ(header.records_bytes, up(kShape.records_bytes));
  CHECK_EQ(header.heap_bytes, kHeap);
  CHECK_EQ(header.bytes, object.bytes);
  CHECK_EQ(check_store(header, object.bytes), "");
}

TEST(no_more_than_what_lies_before_the_tables_gets_pages) {
  const Object object;
  CHECK_EQ(object.format(), "");
  struct stat status{};
  fstat(object.fd.get(), &status);
  CHECK_EQ(static_cast<uint64_t>(status.st_blocks) * 512, kPage + up(kCommunicators));
}

TEST(records_take_no_more_than_half_of_a_store) {
  checkpoint::StoreShape shape = kShape;
  shape.records_bytes = uint64_t{1} << 40;
  const Object object(2 * kBefore + kPage);
  CHECK_EQ(format_store(object.at, object.bytes, object.fd.get(), shape), "");
  CHECK_EQ(object.header().records_bytes, kBefore / kPage * kPage);
  CHECK_EQ(check_store(object.header(), object.bytes), "");
}

TEST(a_store_without_a_heap_is_too_small) {
  const Object none(kBefore), least(kBefore + kPage);
  CHECK_EQ(none.format(), checkpoint::numbered("the store is too small: bytes", kBefore));
  CHECK_EQ(none.header().magic, 0u);
  CHECK_EQ(least.format(), "");
  CHECK_EQ(least.header().heap_bytes, kPage);
}

TEST(a_store_for_which_there_is_no_memory_is_none) {
  const Object object;
  const UniqueFd only_read(
      open(("/proc/self/fd/" + std::to_string(object.fd.get())).c_str(), O_RDONLY));
  const std::string problem = format_store(object.at, object.bytes, only_read.get(), kShape);
  CHECK_EQ(problem, "there is no memory for the store's first pages");
  CHECK_EQ(object.header().magic, 0u);
}

TEST(digests_have_the_seed_of_the_job_or_one_of_the_store) {
  const Object one, other, third;
  third.header().seed = 77;
  for (const Object* object : {&one, &other, &third}) CHECK_EQ(object->format(), "");
  CHECK(one.header().seed != 0 && one.header().seed != other.header().seed);
  CHECK_EQ(third.header().seed, 77u);
}

// ---- what an earlier server has left
// -------------------------------------------------------------

using Change = std::function<void(ring::StoreHeader&)>;

void is_refused(const char* for_what, const Change& change) {
  const Object object;
  CHECK_EQ(object.format(), "");
  change(object.header());
  const std::string problem = check_store(object.header(), object.bytes);
  CHECK(problem.find(for_what) != std::string::npos);
  if (problem.find(for_what) == std::string::npos) std::cerr << for_what << ": " << problem << "\n";
}

TEST(a_store_of_another_kind_is_refused) {
  is_refused("magic number [5]", [](auto& header) { header.magic = 5; });
  is_refused("layout version [3]", [](auto& header) { header.version = 3; });
  is_refused("its size is [8192]", [](auto& header) { header.bytes = 8192; });
  is_refused("committed snapshot [3]", [](auto& header) { header.current = 3; });
  const Object object;
  CHECK_EQ(object.format(), "");
  object.header().current = 2;
  CHECK_EQ(check_store(object.header(), object.bytes), "");
}

TEST(tables_that_lie_in_one_another_are_refused) {
  const char* const text = "second table does not fit";
  is_refused(text, [](auto& h) { h.manifest_offset[1] = h.manifest_offset[0]; });
  is_refused(text, [](auto& h) { std::swap(h.manifest_offset[0], h.manifest_offset[1]); });
  is_refused(text, [](auto& h) { h.manifest_offset[0] = 0; });
  is_refused(text, [](auto& h) { h.manifest_offset[0] += 8; });
  is_refused(text, [](auto& h) { h.manifest_offset[1] += 8; });
  is_refused(text, [](auto& h) { h.manifest_offset[1] = h.bytes; });
  is_refused(text, [](auto& h) { h.manifest_offset[1] += (uint64_t{1} << 63) + kPage; });
  is_refused("third table does not fit", [](auto& h) { h.lent_offset = h.bytes - kPage; });
  is_refused("third table does not fit", [](auto& h) { h.lent_offset = 0; });
  // Each of them may end where the store does.
  const Object object;
  CHECK_EQ(object.format(), "");
  ring::StoreHeader& h = object.header();
  h.lent_offset = h.bytes - 10 * kPage;
  CHECK_EQ(check_store(h, object.bytes), "");
  h.manifest_offset[1] = h.lent_offset;
  h.manifest_offset[0] = h.lent_offset - 10 * kPage;
  CHECK_EQ(check_store(h, object.bytes), "");
}

TEST(an_area_that_does_not_fit_is_refused) {
  is_refused("shares do not fit", [](auto& h) { h.shares_bytes = h.bytes; });
  is_refused("communicators do not fit", [](auto& h) { h.communicators_offset = h.bytes - kPage; });
  is_refused("communicators do not fit", [](auto& h) { h.communicators_offset = 0; });
  is_refused("journal does not fit", [](auto& h) { h.journal_bytes = h.bytes; });
  is_refused("records do not fit", [](auto& h) { h.records_bytes = ~uint64_t{0}; });
  is_refused("heap does not fit", [](auto& h) { ++h.heap_bytes; });
  is_refused("heap does not fit", [](auto& h) { h.heap_offset += 8, h.heap_bytes -= 8; });
  is_refused("heap does not fit", [](auto& h) { h.heap_offset = h.bytes + kPage; });
  is_refused("heap does not fit", [](auto& h) { h.heap_offset = 0; });
  const Object object;
  CHECK_EQ(object.format(), "");
  object.header().heap_offset = object.bytes;  // nothing lies behind the end
  object.header().heap_bytes = 0;
  CHECK_EQ(check_store(object.header(), object.bytes), "");
}

// ---- a table
// -------------------------------------------------------------------------------------

constexpr uint64_t kSeed = 5, kAt = kPage;

StoredSnapshot snapshot(uint64_t blocks, uint64_t places) {
  StoredSnapshot made;
  made.manifest = {3, 30, 300, blocks, places, 64 * blocks, 7, {}};
  for (uint64_t i = 0; i < blocks; ++i) made.blocks.push_back({i, 64, {i, i}, 64 * i, 0});
  for (uint64_t i = 0; i < places; ++i) made.places.push_back({i, 8, i});
  made.manifest.checksum = checkpoint::checksum_of(made, kSeed);
  return made;
}

// As it lies in a store, of which nothing follows.
struct Table {
  explicit Table(const StoredSnapshot& of) : fd(memfd_create("table", MFD_CLOEXEC)) {
    write(&of.manifest, sizeof of.manifest);
    write(of.blocks.data(), of.blocks.size() * sizeof of.blocks[0]);
    write(of.places.data(), of.places.size() * sizeof of.places[0]);
  }
  void write(const void* what, uint64_t count) {
    CHECK(pwrite(fd.get(), what, count, static_cast<off_t>(kAt + bytes)) ==
          static_cast<ssize_t>(count));
    bytes += count;
  }
  std::string load(uint64_t room, StoredSnapshot* to, uint64_t seed = kSeed) const {
    return checkpoint::load_snapshot(fd.get(), kAt, room, seed, to);
  }
  UniqueFd fd;
  uint64_t bytes = 0;
};

TEST(a_table_comes_back_as_it_was_written) {
  for (const auto& [blocks, places] :
       {std::pair(3, 2), std::pair(0, 2), std::pair(3, 0), std::pair(0, 0)}) {
    const StoredSnapshot written = snapshot(blocks, places);
    const Table table(written);
    StoredSnapshot read;
    CHECK_EQ(table.load(table.bytes, &read), "");  // it may fill its room
    CHECK_EQ(read.manifest.cut, 3u);
    CHECK_EQ(read.manifest.step, 7u);
    CHECK_EQ(read.blocks.size(), written.blocks.size());
    CHECK_EQ(read.places.size(), written.places.size());
    for (size_t i = 0; i < read.blocks.size(); ++i) CHECK_EQ(read.blocks[i].heap_offset, 64 * i);
    for (size_t i = 0; i < read.places.size(); ++i) CHECK_EQ(read.places[i].owner, i);
  }
}

TEST(a_table_that_is_larger_than_its_room_is_damaged) {
  const Table table(snapshot(4, 4)), of_blocks(snapshot(4, 0));
  const uint64_t blocks = sizeof(ring::Manifest) + 4 * sizeof(ring::ManifestBlock);
  StoredSnapshot read;
  for (const uint64_t room : {table.bytes - 1, blocks + 1, blocks - 1, sizeof(ring::Manifest)})
    CHECK_EQ(table.load(room, &read), "the committed snapshot in the store is damaged: blocks [4]");
  CHECK_EQ(of_blocks.load(blocks, &read), "");
  CHECK(!of_blocks.load(blocks - 1, &read).empty());
  StoredSnapshot huge = snapshot(0, 0);
  huge.manifest.blocks = ~uint64_t{0};
  CHECK(Table(huge).load(kPage, &read).find("is damaged: blocks") != std::string::npos);
  huge.manifest.blocks = 0;
  huge.manifest.places = ~uint64_t{0};
  CHECK(Table(huge).load(kPage, &read).find("is damaged: blocks") != std::string::npos);
}

TEST(a_table_that_ends_early_cannot_be_read) {
  const StoredSnapshot whole = snapshot(4, 4);
  const uint64_t table = Table(whole).bytes;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{8}, sizeof(ring::Manifest) + 8, table - 1}) {
    const Table cut(whole);
    CHECK_EQ(ftruncate(cut.fd.get(), static_cast<off_t>(kAt + bytes)), 0);
    StoredSnapshot read;
    CHECK_EQ(cut.load(table, &read), "the committed snapshot in the store cannot be read");
  }
}

TEST(every_number_of_a_table_is_in_its_checksum) {
  const std::vector<std::function<void(StoredSnapshot&)>> changes = {
      [](auto& s) { ++s.manifest.cut; },          [](auto& s) { ++s.manifest.seq; },
      [](auto& s) { ++s.manifest.position; },     [](auto& s) { ++s.manifest.bytes; },
      [](auto& s) { ++s.manifest.step; },         [](auto& s) { ++s.blocks[3].since; },
      [](auto& s) { ++s.blocks[0].digest.high; }, [](auto& s) { ++s.places[1].address; },
      [](auto& s) { ++s.manifest.checksum.low; },
  };
  for (const auto& change : changes) {
    StoredSnapshot other = snapshot(4, 2), read;
    change(other);
    const std::string problem = Table(other).load(kPage, &read);
    CHECK(problem.find("its table has another checksum, cut [") != std::string::npos);
  }
  StoredSnapshot read;
  CHECK(!Table(snapshot(4, 2)).load(kPage, &read, kSeed + 1).empty());  // that of another job
}

}  // namespace

CHECK_MAIN
