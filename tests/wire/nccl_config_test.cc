// What a program sets of a communicator's config is what the server's NCCL is given.
#include <cstring>
#include <memory>
#include <optional>

#include "api/mock_table.h"
#include "api/nccl_settings.h"
#include "check.h"
#include "wire/one_process.h"

using namespace pyft;  // NOLINT

namespace {

// What the library was given last.
std::optional<ncclConfig_t> seen;

ncclResult_t keep(ncclComm_t* comm, const ncclConfig_t* config) {
  seen.reset();
  if (config) seen = *config;
  *comm = reinterpret_cast<ncclComm_t>(0x4000);
  return ncclSuccess;
}

ncclResult_t init(ncclComm_t* comm, int, int, int, ncclUniqueId*, ncclConfig_t* config) {
  return keep(comm, config);
}

ncclResult_t split(ncclComm_t, int, int, ncclComm_t* comm, ncclConfig_t* config) {
  return keep(comm, config);
}

ncclResult_t shrink(ncclComm_t, int*, int, ncclComm_t* comm, ncclConfig_t* config, int) {
  return keep(comm, config);
}

ncclResult_t two(const ncclComm_t, int* count) {
  *count = 2;
  return ncclSuccess;
}

OneProcess& process() {
  static backend::Table table = [] {
    backend::Table t = backend::mock_table();
    t.ncclCommInitRankScalable = init;
    t.ncclCommSplit = split;
    t.ncclCommShrink = shrink;
    t.ncclCommCount = two;
    return t;
  }();
  // Its server's thread goes on until the process is gone.
  static auto* const one = std::make_unique<OneProcess>(&table).release();
  return *one;
}

ncclConfig_t config() {
  process();
  ncclConfig_t made = empty_nccl_config();
  made.blocking = 0;
  made.cgaClusterSize = 2;
  made.maxCTAs = 8;
  made.netName = "Socket";
  made.splitShare = 1;
  made.trafficClass = 3;
  made.commName = "data parallel";
  made.nvlinkCentricSched = 1;
  return made;
}

std::string text(const char* from) {
  return from ? from : "nothing";
}

struct Newer {
  ncclConfig_t known;
  int numbers[2];
  const char* name;
};

}  // namespace

TEST(what_is_set_reaches_the_library_and_calls_wait) {
  ncclConfig_t mine = config();
  ncclComm_t comm = nullptr;
  CHECK_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &mine), ncclSuccess);
  CHECK(seen.has_value());
  CHECK_EQ(seen->size, sizeof(ncclConfig_t));
  CHECK_EQ(seen->magic, mine.magic);
  CHECK_EQ(seen->blocking, 1);
  for (const NcclNumber& one : kNcclNumbers) CHECK_EQ((*seen).*one.field, mine.*one.field);
  CHECK_EQ(text(seen->netName), "Socket");
  CHECK_EQ(text(seen->commName), "data parallel");
}

TEST(every_way_to_make_a_communicator_takes_a_config) {
  ncclConfig_t mine = config();
  ncclComm_t comm = nullptr, child = nullptr;
  ncclUniqueId ids[2] = {};
  int gone = 1;
  CHECK_EQ(ncclCommInitRankScalable(&comm, 2, 0, 2, ids, &mine), ncclSuccess);
  CHECK(seen && seen->maxCTAs == 8);
  CHECK_EQ(ncclCommSplit(comm, 0, 0, &child, &mine), ncclSuccess);
  CHECK(seen && seen->maxCTAs == 8 && seen->splitShare == 1);
  CHECK_EQ(ncclCommShrink(comm, &gone, 1, &child, &mine, 0), ncclSuccess);
  CHECK(seen && seen->maxCTAs == 8 && text(seen->netName) == "Socket");
  // Without one there is none: a part then has what its parent has.
  CHECK_EQ(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0), ncclSuccess);
  CHECK(!seen);
  CHECK_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclSuccess);
  CHECK(!seen);
  CHECK_EQ(ncclCommShrink(comm, &gone, 1, &child, nullptr, 0), ncclSuccess);
  CHECK(!seen);
}

TEST(a_config_of_another_version_counts_as_far_as_it_goes) {
  ncclConfig_t mine = config();
  ncclComm_t comm = nullptr;
  // 2.18's ends with splitShare and four bytes of no field, where 2.26 has the traffic class.
  mine.version = 21800;
  mine.size = offsetof(ncclConfig_t, commName);
  CHECK_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &mine), ncclSuccess);
  CHECK(seen && seen->splitShare == 1 && seen->trafficClass == NCCL_CONFIG_UNDEF_INT);
  CHECK(seen && seen->nvlinkCentricSched == NCCL_CONFIG_UNDEF_INT && !seen->commName);
  Newer newer{config(), {NCCL_CONFIG_UNDEF_INT, 7}, nullptr};
  newer.known.size = sizeof newer;
  newer.known.version = 23000;
  CHECK_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &newer.known), ncclSuccess);
  CHECK(seen && seen->maxCTAs == 8 && seen->size == sizeof(ncclConfig_t));
}

TEST(what_is_no_config_is_refused) {
  ncclComm_t comm = nullptr;
  ncclConfig_t mine = config();
  mine.magic = 1;
  CHECK_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &mine), ncclInvalidArgument);
  mine = config();
  mine.size = 8;
  CHECK_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &mine), ncclInvalidArgument);
  mine = config();
  const std::string name(64, 'n');
  mine.netName = name.c_str();
  CHECK_EQ(ncclCommSplit(comm, 0, 0, &comm, &mine), ncclInvalidArgument);
  CHECK_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &mine), ncclInvalidArgument);
  mine = config();
  const std::string label(500, 'l');
  mine.commName = label.c_str();
  CHECK_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &mine), ncclSuccess);
  CHECK_EQ(text(seen->commName), std::string(127, 'l'));
}

TEST(hostile_settings_end_the_server_with_a_sentence) {
  cmd::ncclCommInitRankScalable body{};
  body.comm = Handle::make(HandleKind::kCommunicator, 1, 1).value;
  body.ranks = 2;
  std::vector<std::byte> payload(sizeof(ncclUniqueId) + sizeof(NcclSettings), std::byte{1});
  const auto refused = [&](size_t bytes) {
    return process().refused(Call::ncclCommInitRankScalable, body, {payload.data(), bytes});
  };
  for (const size_t bytes : {size_t{0}, size_t{1}, sizeof(NcclSettings), payload.size() - 1})
    CHECK(!refused(bytes).empty());
  CHECK(!refused(payload.size()).empty());  // names without an end
  CHECK(!process().refused(Call::ncclCommSplit, cmd::ncclCommSplit{}, {payload.data(), 7}).empty());
}

TEST(windows_are_refused_by_name) {
  ncclComm_t comm = nullptr;
  ncclWindow_t window = nullptr;
  void* handle = nullptr;
  ncclConfig_t mine = config();
  CHECK_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &mine), ncclSuccess);
  CHECK_EQ(ncclCommWindowRegister(comm, &mine, sizeof mine, &window, 0), ncclInvalidUsage);
  CHECK(text(ncclGetLastError(nullptr)).find("ncclCommWindowRegister") != std::string::npos);
  CHECK_EQ(ncclCommRegister(comm, &mine, sizeof mine, &handle), ncclSuccess);
  CHECK_EQ(ncclCommDeregister(comm, handle), ncclSuccess);
}

CHECK_MAIN
