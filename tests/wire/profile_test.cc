// A profile by way of a server: which entries the client marks, what the server makes of CUPTI's
// records, and which call each belongs to again.
#include <cstring>
#include <vector>

#include "check.h"
#include "client/device/profiled.h"
#include "profiling/activities.h"
#include "server/profile/collected.h"
#include "wire/one_process.h"

using namespace pyft;  // NOLINT: a test

namespace {

using client::ProfiledEntries;
using client::ProfiledEntry;

constexpr uint32_t kFirstServer = 1, kNextServer = 2;

struct Buffer {
  std::vector<uint64_t> words = std::vector<uint64_t>(4096);
  size_t used = 0;

  template <class Record>
  void put(const Record& record) {
    std::memcpy(reinterpret_cast<uint8_t*>(words.data()) + used, &record, sizeof record);
    used += sizeof record;
  }
  void call(uint32_t call, uint64_t entry) {
    CUpti_ActivityExternalCorrelation record{};
    record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.externalId = entry;
    record.correlationId = call;
    put(record);
  }
  void kernel(const char* name, uint32_t call, int32_t grid) {
    CUpti_ActivityKernel10 record = profiling::kernel_record(name);
    profiling::place(&record, 0, 9, call);
    record.start = 100;
    record.end = 200;
    record.gridX = grid;
    record.gridY = record.gridZ = 1;
    put(record);
  }
};

struct Told {
  ProfiledWork work;
  std::string name;
};

std::vector<Told> parsed(const std::vector<std::byte>& bytes) {
  std::vector<Told> all;
  for (size_t at = 0; at < bytes.size();) {
    Told told;
    std::memcpy(&told.work, bytes.data() + at, sizeof told.work);
    at += sizeof told.work;
    told.name.assign(reinterpret_cast<const char*>(bytes.data()) + at, told.work.name_bytes);
    at += (told.work.name_bytes + 7) / 8 * 8;
    all.push_back(told);
  }
  return all;
}

std::vector<Told> collected(server::Collected& all, Buffer& buffer) {
  backend::Cupti cupti;
  cupti.next_record = [](uint8_t* bytes, size_t valid, CUpti_Activity** record) {
    return profiling::next_record(bytes, valid, record);
  };
  all.add(cupti, reinterpret_cast<uint8_t*>(buffer.words.data()), buffer.used);
  return parsed(all.take());
}

TEST(work_is_told_by_entry_and_a_name_once) {
  server::Collected all;
  Buffer first, second;
  first.call(3, 70);
  first.kernel("a_kernel", 3, 4);
  first.kernel("a_kernel", 3, 5);
  const auto told = collected(all, first);
  CHECK_EQ(told.size(), 2u);
  CHECK_EQ(told[0].work.entry, 70u);
  CHECK_EQ(told[0].name, "a_kernel");
  CHECK_EQ(told[0].work.grid[0], 4u);
  CHECK_EQ(told[0].work.stream, 9u);
  CHECK_EQ(told[0].work.end - told[0].work.start, 100u);
  CHECK_EQ(told[1].name, "");
  CHECK_EQ(told[1].work.name, told[0].work.name);
  // Work that ends later belongs to its entry all the same.
  second.kernel("a_kernel", 3, 6);
  second.kernel("another", 3, 7);
  const auto later = collected(all, second);
  CHECK_EQ(later.size(), 2u);
  CHECK_EQ(later[0].work.entry, 70u);
  CHECK_EQ(later[0].name, "");
  CHECK_EQ(later[1].name, "another");
}

TEST(what_a_server_does_for_itself_is_not_told) {
  server::Collected all;
  Buffer buffer;
  buffer.kernel("of_a_snapshot", 8, 1);
  buffer.call(9, 71);
  CUpti_ActivityMemcpy6 copy = profiling::copy_record(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                                                      CUPTI_ACTIVITY_MEMORY_KIND_PINNED, 64, false);
  profiling::place(&copy, 0, 9, 9);
  buffer.put(copy);
  CUpti_ActivityMemset4 fill = profiling::fill_record(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 5, 32);
  profiling::place(&fill, 0, 9, 9);
  buffer.put(fill);
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.correlationId = 9;
  buffer.put(call);
  const auto told = collected(all, buffer);
  CHECK_EQ(told.size(), 2u);
  CHECK(told[0].work.kind == ProfiledKind::kCopy && told[1].work.kind == ProfiledKind::kFill);
  CHECK_EQ(told[0].work.bytes, 64u);
  CHECK_EQ(int{told[0].work.copy_kind}, int{CUPTI_ACTIVITY_MEMCPY_KIND_HTOD});
  CHECK_EQ(told[1].work.value, 5u);
}

TEST(entries_are_found_in_whatever_order_threads_append_them) {
  profiling::wanted_kinds = profiling::kKernels;
  ProfiledEntries entries;
  entries.note(5, 50, kFirstServer);
  entries.note(9, 90, kFirstServer);
  entries.note(7, 70, kFirstServer);
  CHECK_EQ(entries.see(7)->call, 70u);
  CHECK_EQ(entries.see(5)->kinds, profiling::kKernels);
  CHECK(!entries.see(6));
  entries.note(8, 80, kFirstServer);
  CHECK_EQ(entries.see(8)->call, 80u);
  // One is unseen, and the server has not died: it had nothing to tell.
  CHECK_EQ(entries.end(kFirstServer), 0u);
  CHECK(!entries.any());
  profiling::wanted_kinds = 0;
}

TEST(what_a_dead_server_has_not_told_is_counted) {
  ProfiledEntries entries;
  for (uint64_t seq = 1; seq <= 4; ++seq) entries.note(seq, 10, kFirstServer);
  entries.note(5, 10, kFirstServer, false);
  entries.see(2);
  CHECK_EQ(entries.end(kNextServer), 3u);
  CHECK_EQ(entries.end(kNextServer), 0u);
}

TEST(only_work_that_is_wanted_is_marked) {
  ProfiledEntries entries;
  const auto marked = [&](Call call, uint16_t flags = 0) {
    return ProfiledEntry(entries, call, flags).flags() != 0;
  };
  CHECK(!marked(Call::cuLaunchKernel));
  profiling::wanted_kinds = profiling::kKernels | profiling::kRuntimeCalls;
  CHECK(marked(Call::cuLaunchKernel));
  CHECK(marked(Call::cublasSgemm_v2));
  CHECK(marked(Call::cudaGraphLaunch));
  CHECK(marked(Call::ncclAllReduce) && marked(Call::ncclGroupEnd));
  CHECK(!marked(Call::ncclGroupStart) && !marked(Call::ncclCommSplit));
  CHECK(!marked(Call::cudaMalloc));
  CHECK(!marked(Call::cudaMemcpyAsync));
  CHECK(!marked(Call::cuLaunchKernel, ring::kStreamCaptured));
  profiling::wanted_kinds = profiling::kCopies;
  CHECK(marked(Call::pyftWriteDevice) && marked(Call::pyftReadDevice));
  CHECK(!marked(Call::cudaMemsetAsync));
  profiling::wanted_kinds = 0;
}

TEST(work_of_a_library_belongs_to_a_launch) {
  profiling::wanted_kinds = profiling::kKernels;
  ProfiledEntries entries;
  ring::ControlPage page{};
  {
    ProfiledEntry entry(entries, Call::cublasSgemm_v2, 0);
    CHECK(profiling::current_call() != 0);
    entry.appended(3, page);
  }
  CHECK_EQ(profiling::current_call(), 0u);
  CHECK(entries.see(3)->call != 0);
  {
    const profiling::RuntimeCall call(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020);
    const uint32_t open = profiling::current_call();
    ProfiledEntry entry(entries, Call::cuLaunchKernel, 0);
    entry.appended(4, page);
    CHECK_EQ(entries.see(4)->call, open);
  }
  profiling::wanted_kinds = 0;
}

}  // namespace

CHECK_MAIN
