// A server that stands by loads the modules of clients whose place it may take, and gives them to
// the one it gets. The driver is of the test's making: a module is what it was loaded from.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "api/call_ids.h"
#include "api/commands.h"
#include "api/mock_table.h"
#include "check.h"
#include "pyft/handle.h"
#include "ring/object_log.h"
#include "server/standby_modules.h"

using namespace pyft;  // NOLINT: a test
using server::ReadyModules;
using server::StandbyModules;

namespace {

using Bytes = std::vector<std::byte>;

struct Driver {
  std::map<uint64_t, Bytes> loaded;  // by module
  std::vector<uint64_t> unloaded;
  std::vector<std::string> functions;
  uint64_t next = 0;
  size_t free = 1 << 30, total = 1 << 30;
  int code = 0, torn = 0;
} driver;

size_t image_bytes = 64;
std::atomic<int> loads{0};

const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.cuModuleLoadData = [](CUmodule* module, const void* image) {
      if (driver.code) return static_cast<CUresult>(driver.code);
      const auto* from = static_cast<const std::byte*>(image);
      driver.loaded[++driver.next] = Bytes(from, from + image_bytes);
      ++loads;
      driver.torn += std::count(from, from + image_bytes, *from) != static_cast<long>(image_bytes);
      *module = reinterpret_cast<CUmodule>(driver.next);
      return CUDA_SUCCESS;
    };
    t.cuModuleUnload = [](CUmodule module) {
      driver.unloaded.push_back(reinterpret_cast<uint64_t>(module));
      return driver.loaded.erase(driver.unloaded.back()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    };
    t.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) {
      driver.functions.emplace_back(name);
      *function = reinterpret_cast<CUfunction>(0x3000);
      return CUDA_SUCCESS;
    };
    t.cudaMemGetInfo = [](size_t* free, size_t* total) {
      *free = driver.free;
      *total = driver.total;
      return cudaSuccess;
    };
    return t;
  }();
  return made;
}

Bytes image(int number) {
  return Bytes(image_bytes, static_cast<std::byte>(number));
}

uint64_t module_handle(uint32_t index) {
  return Handle::make(HandleKind::kModule, index, 1).value;
}

// A client that only loads modules.
struct Client {
  explicit Client(uint64_t log_bytes = 1 << 12) {
    ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.bounce_bytes = 1 << 12;
    shape.object_log_bytes = log_bytes;
    channel = ring::Channel::create(shape, &error);
    log = std::make_unique<ring::ObjectLog>(*channel);
  }
  uint64_t load(int number) {
    const uint64_t handle = module_handle(++modules);
    fold(Call::cuModuleLoadData, ring::kCreates, cmd::cuModuleLoadData{handle}, image(number));
    return handle;
  }
  void unload(uint64_t handle) {
    fold(Call::cuModuleUnload, ring::kDestroys, cmd::cuModuleUnload{handle}, {});
  }
  void function(uint64_t module, const std::string& name) {
    const uint64_t handle = Handle::make(HandleKind::kKernel, ++kernels, 1).value;
    const auto* text = reinterpret_cast<const std::byte*>(name.data());
    fold(Call::cuModuleGetFunction, ring::kCreates, cmd::cuModuleGetFunction{handle, module},
         Bytes(text, text + name.size()));
  }
  template <class Command>
  void fold(Call call, uint16_t flags, const Command& command, const Bytes& payload) {
    ring::EntryHeader header{};
    header.call = static_cast<uint16_t>(call);
    header.flags = static_cast<uint16_t>(flags | (payload.empty() ? 0 : ring::kHasPayload));
    header.seq = ++seq;
    header.payload_bytes = payload.size();
    CHECK(log->fold(header, std::as_bytes(std::span(&command, 1)), payload));
  }
  UniqueFd descriptor() const { return channel->dup_fds().log; }

  std::string error;
  std::unique_ptr<ring::Channel> channel;
  std::unique_ptr<ring::ObjectLog> log;
  uint64_t seq = 0;
  uint32_t modules = 0, kernels = 0;
};

struct Standby {
  Standby() {
    driver = {};
    image_bytes = 64;
  }
  // All there is to do.
  void catch_up() {
    for (int i = 0; i < 40; ++i) modules.turn();
  }
  void follow(uint64_t id, const Client& client) { modules.follow(id, client.descriptor()); }
  size_t choose(const std::vector<std::pair<uint64_t, int>>& wanted,
                const std::vector<ring::ManifestPlace>& places = {}) {
    std::vector<Bytes> bytes;
    for (const auto& [handle, number] : wanted) bytes.push_back(image(number));
    std::vector<checkpoint::ModuleImage> images;
    for (size_t i = 0; i < wanted.size(); ++i) images.push_back({wanted[i].first, bytes[i]});
    return ready.choose(images, places);
  }
  // What the module of this handle was loaded from, 0 if it has to be loaded.
  int take(uint64_t handle, int number) {
    server::LoadedModule got;
    if (!ready.take(handle, image(number), &got)) return 0;
    return std::to_integer<int>(driver.loaded.at(reinterpret_cast<uint64_t>(got.module))[0]);
  }

  ReadyModules ready{table()};
  StandbyModules modules{ready};
};

}  // namespace

TEST(modules_are_there_when_a_client_needs_them) {
  Standby standby;
  Client client;
  const uint64_t first = client.load(1), second = client.load(2);
  standby.follow(0, client);
  standby.catch_up();
  CHECK_EQ(driver.loaded.size(), 2u);
  const uint64_t third = client.load(3);
  standby.catch_up();
  CHECK_EQ(driver.next, 3u);  // the others are known
  CHECK_EQ(standby.choose({{first, 1}, {second, 2}, {third, 3}}), 3u);
  CHECK_EQ(standby.take(third, 3), 3);
  CHECK_EQ(standby.take(third, 3), 0);  // once
  CHECK_EQ(standby.take(first, 2), 0);  // other bytes than when it was chosen
  CHECK_EQ(standby.take(first, 1), 1);
  CHECK(driver.unloaded.empty());
}

TEST(one_module_at_a_time_and_then_a_rest) {
  Standby standby;
  Client client;
  client.load(1);
  client.load(2);
  standby.follow(0, client);
  CHECK(standby.modules.turn() < StandbyModules::kLookMs);
  CHECK_EQ(driver.loaded.size(), 1u);
  standby.modules.turn();
  CHECK_EQ(driver.loaded.size(), 2u);
  CHECK_EQ(standby.modules.turn(), StandbyModules::kLookMs);
}

TEST(the_same_bytes_loaded_twice_are_two_modules) {
  Standby standby;
  Client client, other;
  const uint64_t first = client.load(1), second = client.load(1);
  other.load(1);
  standby.follow(0, client);
  standby.follow(1, other);
  standby.catch_up();
  CHECK_EQ(driver.loaded.size(), 2u);  // as many as one of them has
  CHECK_EQ(standby.choose({{first, 1}, {second, 1}}), 2u);
  server::LoadedModule a, b;
  CHECK(standby.ready.take(first, image(1), &a) && standby.ready.take(second, image(1), &b));
  CHECK(a.module != b.module);
}

TEST(what_a_client_unloads_is_unloaded) {
  Standby standby;
  Client client, other;
  const uint64_t first = client.load(1);
  client.load(2);
  other.load(1);
  standby.follow(0, client);
  standby.follow(1, other);
  standby.catch_up();
  client.unload(first);
  standby.catch_up();
  CHECK_EQ(driver.loaded.size(), 2u);  // the other one has it
  standby.modules.forget(1);
  standby.catch_up();
  CHECK_EQ(driver.loaded.size(), 1u);
  CHECK(driver.loaded.begin()->second == image(2));
}

TEST(modules_of_other_clients_are_unloaded_at_the_takeover) {
  Standby standby;
  Client client, other;
  const uint64_t mine = client.load(1);
  other.load(2);
  standby.follow(0, client);
  standby.follow(1, other);
  standby.catch_up();
  CHECK_EQ(driver.loaded.size(), 2u);
  CHECK_EQ(standby.choose({{mine, 1}}), 1u);
  CHECK_EQ(driver.loaded.size(), 1u);
  CHECK_EQ(standby.take(mine, 1), 1);
  CHECK_EQ(standby.choose({}), 0u);  // one that takes over with no committed snapshot needs nothing
}

// The log is compacted in place, again and again.
TEST(a_log_that_is_being_written_over_is_followed) {
  Standby standby;
  Client client;
  const uint64_t stays = client.load(9);
  standby.follow(0, client);
  uint64_t last = 0;
  for (int i = 1; i < 100; ++i) {
    if (last) client.unload(last);
    last = client.load(i);
    standby.modules.turn();
  }
  CHECK(client.log->compactions() > 0);
  standby.catch_up();
  CHECK_EQ(standby.choose({{stays, 9}, {last, 99}}), 2u);
  CHECK_EQ(driver.loaded.size(), 2u);
}

// Each image has one byte many times over: parts of two of them would show.
TEST(a_log_is_followed_while_another_thread_writes_it) {
  Standby standby;
  image_bytes = 1 << 14;
  Client client(1 << 18);
  standby.follow(0, client);
  std::atomic<bool> done{false};
  uint64_t last = 0;
  int number = 0;
  loads = 0;
  std::thread writer([&] {
    for (int i = 0; i < 1'000'000 && loads < 30; ++i) {
      if (last) client.unload(last);
      last = client.load(number = i % 255 + 1);
    }
    done = true;
  });
  while (!done) standby.modules.turn();
  writer.join();
  CHECK(client.log->compactions() > 10);
  CHECK(loads >= 30);
  CHECK_EQ(driver.torn, 0);
  standby.catch_up();
  CHECK_EQ(standby.choose({{last, number}}), 1u);
  CHECK_EQ(driver.loaded.size(), 1u);
}

TEST(functions_are_looked_up_once) {
  Standby standby;
  Client client;
  const uint64_t module = client.load(1);
  client.function(module, "add");
  standby.follow(0, client);
  standby.catch_up();
  client.function(module, "multiply");
  standby.catch_up();
  CHECK(driver.functions == std::vector<std::string>({"add", "multiply"}));
}

// The test's images have no variables: the place of one is nowhere.
TEST(modules_in_another_order_must_have_their_variables_where_they_lay) {
  for (const bool places : {false, true}) {
    Standby standby;
    Client first, second;
    first.load(7);
    const uint64_t mine = second.load(1);
    standby.follow(0, first);
    standby.follow(1, second);
    standby.catch_up();
    const std::vector<ring::ManifestPlace> before = {{0x1000, 64, mine}};
    CHECK_EQ(standby.choose({{mine, 1}}, places ? before : std::vector<ring::ManifestPlace>()),
             places ? 0u : 1u);
    CHECK_EQ(driver.loaded.size(), places ? 0u : 1u);
  }
}

TEST(the_order_is_kept_where_bytes_come_twice) {
  Standby standby;
  Client client;
  const uint64_t first = client.load(1), second = client.load(2), third = client.load(1);
  standby.follow(0, client);
  standby.catch_up();
  CHECK_EQ(standby.choose({{first, 1}, {second, 2}, {third, 1}}, {{0x1000, 64, third}}), 3u);
}

TEST(modules_in_the_programs_order_are_as_if_they_were_loaded_now) {
  for (const bool gap : {false, true}) {
    Standby standby;
    Client client, later;
    const uint64_t ends = gap ? client.load(5) : 0;
    const uint64_t first = client.load(1), second = client.load(2);
    standby.follow(0, client);
    standby.catch_up();
    if (gap) client.unload(ends);
    later.load(8);
    standby.follow(1, later);
    standby.catch_up();
    const uint64_t third = client.load(3);  // which has not been noticed
    CHECK_EQ(driver.loaded.size(), 3u);
    const std::vector<ring::ManifestPlace> before = {{0x1000, 64, second}, {0x2000, 64, third}};
    CHECK_EQ(standby.choose({{first, 1}, {second, 2}, {third, 3}}, before), gap ? 0u : 2u);
    CHECK_EQ(standby.take(second, 2), gap ? 0 : 2);
  }
}

TEST(memory_is_bounded) {
  Standby standby;
  Client client;
  client.load(1);
  client.load(2);
  standby.follow(0, client);
  driver.free = driver.total / ReadyModules::kFreeShare;  // and nothing for a module
  standby.catch_up();
  CHECK_EQ(driver.next, 0u);
  driver.free += image_bytes;
  standby.catch_up();
  CHECK_EQ(driver.loaded.size(), 2u);
  CHECK(!standby.ready.has_room(ReadyModules::kMostBytes));
  CHECK(!standby.ready.has_room(ReadyModules::kMostBytes - 1));
  driver.free = driver.total;
  CHECK(standby.ready.has_room(ReadyModules::kMostBytes / 2));
}

TEST(what_is_given_up_is_not_taken_again) {
  Standby standby;
  Client client;
  const uint64_t module = client.load(1);
  standby.follow(0, client);
  standby.catch_up();
  standby.modules.give_up();
  CHECK(driver.loaded.empty());
  standby.follow(0, client);
  standby.catch_up();
  CHECK_EQ(driver.next, 1u);
  CHECK_EQ(standby.choose({{module, 1}}), 0u);
}

TEST(a_module_that_cannot_be_loaded_is_left_to_who_needs_it) {
  Standby standby;
  Client client;
  client.load(1);
  standby.follow(0, client);
  driver.code = CUDA_ERROR_INVALID_IMAGE;
  standby.catch_up();
  driver.code = 0;
  client.load(2);
  standby.catch_up();
  CHECK_EQ(driver.loaded.size(), 1u);
  driver.code = CUDA_ERROR_OUT_OF_MEMORY;
  client.load(3);
  standby.catch_up();
  CHECK(driver.loaded.empty());
}

TEST(what_is_no_log_is_left_alone) {
  Standby standby;
  standby.modules.follow(0, UniqueFd());
  standby.modules.follow(1, UniqueFd(memfd_create("pyft-test", MFD_CLOEXEC)));
  CHECK_EQ(standby.modules.turn(), StandbyModules::kLookMs);
}

CHECK_MAIN
