// What a real driver does and the soft GPU does not, done by one of this test's making: pages that
// are registered once, calls that do not return, default streams that a snapshot makes untouchable,
// errors that only new work meets, memory that comes back late (docs/spec/real-gpu.md).
#include <condition_variable>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "api/mock_table.h"
#include "check.h"
#include "client/code/fatbin.h"
#include "client/code/module.h"
#include "comes.h"
#include "fake_device.h"
#include "own_server.h"
#include "server/device.h"
#include "server/handlers/moved_variables.h"
#include "server/handlers/scratch.h"
#include "server/recovery/session_device.h"
#include "server/standby.h"
#include "server/watchdog.h"

using namespace pyft;  // NOLINT: a test

namespace {

constexpr uint64_t kPage = 4096;

struct Driver {
  std::map<uint64_t, uint64_t> registered;  // pages
  int refused = 0, registrations = 0;
  bool capturing = false, broken = false;  // a blocking stream captures; its capture is broken
  int failure = 0;                         // of the context, met by new work only
  int refusals_left = 0;                   // of memory
  int launches = 0;
  bool without_buffer = false;
  int fill_code = 0;
  int loads = 0, load_code = 0;  // of modules
  int left_behind = 0;           // what a destroyed stream still does fails with this code
  uint64_t elsewhere_by = 0;     // where the device has page-locked memory
} driver;

CUresult register_memory(void* memory, size_t bytes, unsigned) {
  const auto begin = reinterpret_cast<uint64_t>(memory) / kPage;
  const auto end = (reinterpret_cast<uint64_t>(memory) + bytes + kPage - 1) / kPage;
  for (const auto& [first, last] : driver.registered)
    if (first < end && begin < last)
      return ++driver.refused, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  driver.registered[begin] = end;
  ++driver.registrations;
  return CUDA_SUCCESS;
}

CUresult unregister_memory(void* memory) {
  return driver.registered.erase(reinterpret_cast<uint64_t>(memory) / kPage)
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

// As a copy would want it: in one registration.
bool wholly_registered(const std::byte* memory, uint64_t bytes) {
  const auto at = reinterpret_cast<uint64_t>(memory);
  for (const auto& [first, last] : driver.registered)
    if (first * kPage <= at && at + bytes <= last * kPage) return true;
  return false;
}

CUresult query(CUstream stream) {
  if (stream || !driver.capturing) return CUDA_SUCCESS;
  driver.broken = true;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult begin_capture(CUstream, CUstreamCaptureMode) {
  driver.capturing = true;
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                CUstream, void**, void** extra) {
  ++driver.launches;
  driver.without_buffer = extra == nullptr;
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                unsigned long long) {
  *handle = 7;
  return driver.refusals_left-- > 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult retain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(0x10);
  return driver.refusals_left-- > 0 ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

CUresult record(CUevent, CUstream) {
  return static_cast<CUresult>(driver.failure);
}

CUresult host_pointer(CUdeviceptr* address, void* memory, unsigned) {
  *address = reinterpret_cast<CUdeviceptr>(memory) + driver.elsewhere_by;
  return CUDA_SUCCESS;
}

CUresult fill(CUdeviceptr, unsigned char, size_t, CUstream) {
  return static_cast<CUresult>(driver.fill_code);
}

cudaError_t every_attribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}

cudaError_t every_property(cudaDeviceProp* prop, int) {
  std::memset(static_cast<void*>(prop), 1, sizeof *prop);
  return cudaSuccess;
}

backend::Table& table() {
  static backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.cuMemHostRegister_v2 = register_memory;
    t.cuMemHostUnregister = unregister_memory;
    t.cuStreamQuery = query;
    t.cuStreamBeginCapture_v2 = begin_capture;
    t.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      *stream = reinterpret_cast<CUstream>(0x1000);
      return CUDA_SUCCESS;
    };
    t.cuEventRecord = record;
    t.cuLaunchKernel = launch;
    t.ncclCommInitRankScalable = [](ncclComm_t* comm, int, int, int, ncclUniqueId*, ncclConfig_t*) {
      *comm = reinterpret_cast<ncclComm_t>(0x4000);
      return ncclSuccess;
    };
    t.ncclCommCount = [](const ncclComm_t, int* count) {
      *count = 2;
      return ncclSuccess;
    };
    t.cuMemCreate = create;
    t.cuMemsetD8Async = fill;
    t.cuMemHostGetDevicePointer_v2 = host_pointer;
    t.cuModuleLoadData = [](CUmodule* module, const void*) {
      *module = reinterpret_cast<CUmodule>(0x2000);
      ++driver.loads;
      return static_cast<CUresult>(driver.load_code);
    };
    t.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
      *function = reinterpret_cast<CUfunction>(0x3000);
      return CUDA_SUCCESS;
    };
    t.cuFuncGetParamInfo = [](CUfunction, size_t, size_t*, size_t*) {
      return CUDA_ERROR_INVALID_VALUE;  // it has none
    };
    t.cuCtxSynchronize = [] { return static_cast<CUresult>(driver.left_behind); };
    t.cuDevicePrimaryCtxRetain = retain;
    t.cudaDeviceGetAttribute = every_attribute;
    t.cudaGetDeviceProperties = every_property;
    return t;
  }();
  return made;
}

const backend::Backend& vendor() {
  static const backend::Backend made{backend::Kind::kVendor, table(), {}};
  return made;
}

struct Own : OwnServer {
  explicit Own(uint64_t pinned_bytes = 0) : OwnServer(&table(), pinned_bytes) {}
  explicit Own(server::DeviceCalls& device) : OwnServer(&table(), device) {}
};

// A program and its server. Never destroyed: the server's thread does not end.
OneProcess& process() {
  static auto* const made = std::make_unique<OneProcess>(&table()).release();
  return *made;
}

}  // namespace

TEST(scratch_memory_shares_no_page) {
  driver = {};
  server::ScratchMemory scratch;
  std::byte* const small = scratch.take(table(), 100);
  std::byte* const next = scratch.take(table(), 100);
  std::byte* const large = scratch.take(table(), kPage + 1);
  CHECK(wholly_registered(small, 100) && wholly_registered(next, 100));
  CHECK(wholly_registered(large, kPage + 1));
  CHECK_EQ(driver.refused, 0);
  scratch.give(next);
  CHECK(scratch.take(table(), 200) == next);  // no registration, which waits for the device
  CHECK_EQ(driver.registrations, 3);
  scratch.give(large);
  scratch.take(table(), 1 << 16);
  CHECK_EQ(driver.registered.size(), 4u);  // to unregister some might wait for other ranks
  scratch.release(table());
  CHECK_EQ(driver.registered.size(), 3u);
  CHECK(wholly_registered(small, 100));
}

// The device has something to do, so it is asked about every 100 ms, and the answer does not come.
TEST(a_driver_that_does_not_return_is_no_dead_server) {
  std::mutex mutex;
  std::condition_variable changed;
  bool asked = false, answers = false;
  FakeDevice calls;
  calls.on_publish = [](void (*)(void*), void*) { return 0; };
  calls.on_status = [&] {
    std::unique_lock lock(mutex);
    asked = true;
    changed.wait(lock, [&] { return answers; });
    return 0;
  };
  Own own(calls);
  CHECK(own.session.publish_on_stream(nullptr, 1, 1).ok());
  const server::Heartbeat heartbeat(own.session);
  CHECK(comes([&] {
    const std::lock_guard lock(mutex);
    return asked;
  }));
  for (int beats = 0; beats < 2; ++beats) {
    const uint64_t last = own.channel->control().heartbeat_ns.load();
    CHECK(comes([&] { return own.channel->control().heartbeat_ns.load() != last; }));
  }
  const std::lock_guard lock(mutex);
  answers = true;
  changed.notify_all();
}

TEST(a_snapshot_is_not_broken_by_a_look_at_the_device) {
  driver = {};
  const auto device = server::device_calls(vendor(), 0, nullptr, nullptr, nullptr);
  Own own(*device);
  CHECK_EQ(own.session.device_status(), 0);
  CHECK(own.dispatch(Call::cudaStreamBeginCapture, cmd::cudaStreamBeginCapture{}).ok());
  CHECK_EQ(own.session.open_captures(), 1u);
  CHECK_EQ(own.session.device_status(), 0);
  CHECK(!driver.broken);
  // A thread that looks all the same has learnt nothing of the device.
  FakeDevice calls;
  calls.on_publish = [](void (*)(void*), void*) { return 0; };
  calls.on_status = [] { return static_cast<int>(query(nullptr)); };
  Own other(calls);
  CHECK(other.session.publish_on_stream(nullptr, 1, 1).ok());
  other.session.sweep_fences();
  CHECK_EQ(other.channel->control().sticky_error.load(), 0);
  CHECK(driver.broken);
}

TEST(a_failure_that_only_new_work_meets_is_noticed) {
  driver = {};
  const auto device = server::device_calls(vendor(), 0, nullptr, nullptr, nullptr);
  Own own(*device);
  driver.failure = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK_EQ(own.session.device_status(), 700);
}

// No stream that the program still has knows of it.
TEST(a_cut_waits_for_streams_that_were_destroyed) {
  driver = {};
  Own own;
  const backend::Extras none;
  server::SessionState state(own.session, none);
  CHECK_EQ(state.idle(), 0);
  driver.left_behind = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK_EQ(state.idle(), 700);
}

TEST(page_locked_memory_that_the_device_has_elsewhere_is_refused) {
  driver = {};
  Own own(kPage);
  const auto at = reinterpret_cast<uint64_t>(own.channel->pinned());
  const auto give = [&] {
    ring::EntryHeader header{};
    header.flags = ring::kWantsReply;
    header.seq = 9;
    const cmd::cudaHostAlloc body{at, kPage, 0, 0};
    header.call = static_cast<uint16_t>(Call::cudaHostAlloc);
    CHECK(server::dispatch(own.session, header, std::as_bytes(std::span(&body, 1)), {}).ok());
    return own.channel->slot(0).code;
  };
  driver.elsewhere_by = 1 << 20;
  CHECK_EQ(give(), CUDA_ERROR_NOT_SUPPORTED);
  CHECK(driver.registered.empty());
  driver.elsewhere_by = 0;
  CHECK_EQ(give(), CUDA_SUCCESS);
  CHECK(wholly_registered(own.channel->pinned(), kPage));
}

// A launch would give it none.
TEST(a_kernel_whose_parameters_nobody_tells_is_refused) {
  driver = {};
  OneProcess& p = process();
  p.device->writer().wait_consumed_all();
  const auto tells = std::exchange(table().cuFuncGetParamInfo, nullptr);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CHECK_EQ(cuModuleLoadData(&module, ".version 9.0 .target sm_90"), CUDA_SUCCESS);
  CHECK_EQ(cuModuleGetFunction(&function, module, "kernel"), CUDA_ERROR_NOT_SUPPORTED);
  table().cuFuncGetParamInfo = tells;
  CHECK_EQ(cuModuleGetFunction(&function, module, "kernel"), CUDA_SUCCESS);
}

// A program that was told so gives memory back, and launches again.
TEST(a_module_for_which_there_was_no_memory_may_be_loaded_later) {
  driver = {};
  OneProcess& p = process();
  client::Module module(".version 9.0 .target sm_90", false);
  uint64_t handle = 0;
  const auto load = [&] { return module.load(*p.device, &handle); };
  driver.load_code = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK_EQ(load(), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(handle, 0u);
  driver.load_code = CUDA_ERROR_INVALID_IMAGE;
  CHECK_EQ(load(), CUDA_ERROR_INVALID_IMAGE);
  driver.load_code = 0;
  CHECK_EQ(load(), CUDA_ERROR_INVALID_IMAGE);  // the image is the same
  CHECK_EQ(driver.loads, 2);
  client::Module other(".version 9.0 .target sm_90", false);
  driver.load_code = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK_EQ(other.load(*p.device, &handle), CUDA_ERROR_OUT_OF_MEMORY);
  driver.load_code = 0;
  CHECK_EQ(other.load(*p.device, &handle), CUDA_SUCCESS);
}

// As kernels for newer devices are launched: hints that the server does not pass on are no errors.
TEST(a_kernel_without_parameters_has_no_buffer_and_may_have_hints) {
  driver = {};
  OneProcess& p = process();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CHECK_EQ(cuModuleLoadData(&module, ".version 9.0 .target sm_90"), CUDA_SUCCESS);
  CHECK_EQ(cuModuleGetFunction(&function, module, "kernel"), CUDA_SUCCESS);
  CUlaunchAttribute hints[3] = {};
  hints[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  hints[1].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  hints[2].id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = hints;
  config.numAttrs = 3;
  CHECK_EQ(cuLaunchKernelEx(&config, function, nullptr, nullptr), CUDA_SUCCESS);
  p.device->writer().wait_consumed_all();
  CHECK_EQ(driver.launches, 1);
  CHECK(driver.without_buffer);
}

// The address is a hint to the driver.
TEST(a_window_at_another_place_is_refused) {
  static CUdeviceptr place = 0;
  backend::Table reserves{};
  reserves.cuMemAddressReserve = [](CUdeviceptr* got, size_t, size_t, CUdeviceptr wanted,
                                    unsigned long long) {
    *got = place ? place : wanted;
    return CUDA_SUCCESS;
  };
  CHECK_EQ(server::reserve_window(reserves, 1), "");
  place = 0x7f00'0000'0000;
  CHECK(server::reserve_window(reserves, 1).find("instead of") != std::string::npos);
}

TEST(code_is_chosen_as_the_driver_would) {
  struct Entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t sizes[3], arch;
    uint64_t rest[4];
  };
  constexpr uint16_t kPtx = 1, kElf = 2;
  std::vector<std::byte> fatbin(16);
  // Twice 90: the same source for what every 9.0 has, and for what only sm_90a has.
  for (const auto& [kind, arch] : std::vector<std::pair<uint16_t, uint32_t>>{
           {kElf, 75}, {kElf, 80}, {kElf, 90}, {kElf, 100}, {kPtx, 80}, {kElf, 90}}) {
    const Entry entry{kind, 1, sizeof(Entry), 8, {}, arch, {}};
    const auto bytes = std::as_bytes(std::span(&entry, 1));
    fatbin.insert(fatbin.end(), bytes.begin(), bytes.end());
    fatbin.insert(fatbin.end(), 8, std::byte{0});
  }
  const uint32_t magic = 0xba55ed50;
  const uint16_t start[] = {1, 16};
  const uint64_t size = fatbin.size() - 16;
  std::memcpy(fatbin.data(), &magic, sizeof magic);
  std::memcpy(fatbin.data() + 4, start, sizeof start);
  std::memcpy(fatbin.data() + 8, &size, sizeof size);
  const auto chosen = [&](int major, int minor) {
    const std::vector<std::byte> code = client::select_code(fatbin.data(), major, minor);
    std::vector<uint32_t> archs;
    for (size_t at = 16; at < code.size(); at += sizeof(Entry) + 8) {
      Entry entry;
      std::memcpy(&entry, code.data() + at, sizeof entry);
      archs.push_back(entry.arch + (entry.kind == kPtx ? 1000 : 0));
    }
    return archs;
  };
  CHECK(chosen(9, 0) == std::vector<uint32_t>({90, 90}));
  CHECK(chosen(8, 9) == std::vector<uint32_t>{80});
  CHECK(chosen(12, 0) == std::vector<uint32_t>{1080});
  CHECK(chosen(7, 0).empty());
}

TEST(a_gpu_that_is_shared_by_mps_is_named) {
  backend::Table shared{};
  CHECK_EQ(server::shared_fate(shared, 0), "");
  shared.cuDeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice) {
    *value = which == CU_DEVICE_ATTRIBUTE_MPS_ENABLED;
    return CUDA_SUCCESS;
  };
  CHECK(server::shared_fate(shared, 0).find("shared by MPS") != std::string::npos);
}

// Entry by entry: an error of the device belongs to the entry before it.
TEST(a_serial_replay_waits_for_a_device_that_works_by_itself) {
  static int working = 0, early = 0, entries = 0;
  working = early = entries = 0;
  const auto channel = make_channel();
  const AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  for (uint64_t i = 0; i < 3; ++i) CHECK(static_cast<bool>(writer.append(ring::kFirstCall, i)));
  channel->control().consumed = channel->log_view().header->appended.load();
  channel->control().replay_mode = static_cast<uint32_t>(ring::ReplayMode::kSerial);
  CHECK(static_cast<bool>(writer.goodbye()));
  server::Session session(*channel, &table(), alive);
  const auto dispatch = [](server::Session&, const ring::EntryHeader&, server::Body, server::Body) {
    if (working) ++early;
    working = 3;
    ++entries;
    return server::Status::good();
  };
  server::Loop loop(session, dispatch, 0);
  struct Working : server::Loop::Hooks {
    int device() override { return working && --working ? 600 : 0; }
  } hooks;
  loop.set_hooks(&hooks);
  CHECK(loop.run() == server::Loop::End::kGoodbye);
  CHECK_EQ(entries, 3);
  CHECK_EQ(early, 0);
}

TEST(contents_of_variables_go_where_the_driver_has_put_them) {
  constexpr uint64_t kModule = 5, kOther = 6;
  const std::vector<ring::ManifestPlace> before = {
      {0x1000, 8, kModule}, {0x2000, 8, kModule}, {0x3000, 64, kOther}};
  // In another order than before, and one where another has been.
  const server::LoadedModule moved{nullptr, {{0x3000, 8}, {0x1000, 8}}, false};
  std::map<uint64_t, server::LoadedModule> now = {{kModule, moved},
                                                  {kOther, {nullptr, {{0x3100, 64}}, false}}};
  server::MovedVariables variables;
  CHECK_EQ(variables.find(now, before), "");
  CHECK_EQ(variables.count(), 3u);
  CHECK_EQ(variables.now_at(0x1004), 0x3004u);
  CHECK_EQ(variables.now_at(0x2000), 0x1000u);
  CHECK_EQ(variables.now_at(0x303f), 0x313fu);
  CHECK_EQ(variables.now_at(0x3040), 0x3040u);
  CHECK(variables.moved_to(0x3107) && !variables.moved_to(0x2000));
  now[kOther].escaped = true;
  CHECK(variables.find(now, before).find("which the program knows, are at [12544] now") !=
        std::string::npos);
  now[kOther].variables = {{0x3000, 64}};  // where it was
  CHECK_EQ(variables.find(now, before), "");
  CHECK_EQ(variables.count(), 2u);
  now[kModule].variables.pop_back();
  CHECK(variables.find(now, before).find("are not there again") != std::string::npos);
}

// 0 would say that nothing is known of the device: then its first kernel could hang unseen.
TEST(a_device_that_has_finished_nothing_yet_is_known) {
  driver = {};
  FakeDevice calls;
  Own own(calls);
  own.session.show_activity();
  CHECK_EQ(own.channel->control().device_progress.load(), 0u);
  calls.known_progress = 0;
  calls.known_waiting = 0;
  own.session.show_activity();
  CHECK(own.channel->control().device_progress.load() != 0);
}

// Without marks (collective_marks_test.cc) nothing can see whether NCCL's kernels work or wait.
TEST(a_rank_that_may_wait_for_others_in_nccl_is_not_stuck) {
  driver = {};
  FakeDevice calls;
  calls.known_progress = 1;
  calls.known_waiting = 0;
  calls.sees = false;
  Own own(calls);
  own.session.show_activity();
  CHECK_EQ(own.channel->control().collectives_waiting.load(), 0u);
  ring::EntryHeader header{};
  header.call = static_cast<uint16_t>(Call::ncclCommInitRankScalable);
  header.reply_slot = ring::kNoSlot;
  cmd::ncclCommInitRankScalable body{};
  body.comm = Handle::make(HandleKind::kCommunicator, 1, 1).value;
  const ncclUniqueId id{};
  CHECK(server::dispatch(own.session, header, std::as_bytes(std::span(&body, 1)),
                         std::as_bytes(std::span(&id, 1)))
            .ok());
  own.session.show_activity();
  CHECK_EQ(own.channel->control().collectives_waiting.load(), 1u);
}

TEST(the_memory_of_a_server_that_has_just_died_is_waited_for) {
  driver = {};
  Own own;
  CUmemGenericAllocationHandle memory{};
  driver.refusals_left = 3;
  CHECK_EQ(server::create_memory(own.session, 2 << 20, &memory), CUDA_ERROR_OUT_OF_MEMORY);
  own.session.recovery().enter(ring::Phase::kObjects);
  CHECK_EQ(server::create_memory(own.session, 2 << 20, &memory), CUDA_SUCCESS);
  CHECK_EQ(driver.refusals_left, -1);
  CUcontext context = nullptr;
  driver.refusals_left = 2;
  CHECK(!server::enter_context(table(), 0, &context).empty());  // the first server of a rank
  setenv("PYFT_SELF_TEST", "1", 1);
  CHECK_EQ(server::enter_context(table(), 0, &context), "");
  unsetenv("PYFT_SELF_TEST");
}

TEST(programs_are_not_offered_what_the_server_cannot_give) {
  process();
  int value = -1;
  for (const CUdevice_attribute one :
       {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
        CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED}) {
    CHECK_EQ(cuDeviceGetAttribute(&value, one, 0), CUDA_SUCCESS);
    CHECK_EQ(value, 0);
  }
  for (const CUdevice_attribute one :
       {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
        CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED}) {
    CHECK_EQ(cuDeviceGetAttribute(&value, one, 0), CUDA_SUCCESS);
    CHECK_EQ(value, 1);
  }
  cudaDeviceProp prop{};
  CHECK_EQ(cudaGetDeviceProperties(&prop, 0), cudaSuccess);
  CHECK_EQ(prop.managedMemory, 0);
  CHECK_EQ(prop.pageableMemoryAccess, 0);
  CHECK(prop.clusterLaunch != 0);
}

// The client cannot know that the driver refuses them; a failed device is another matter.
TEST(a_command_that_fails_is_told_once) {
  driver = {};
  OneProcess& p = process();
  auto* const memory = reinterpret_cast<void*>(ring::kDeviceWindowBase);
  driver.fill_code = CUDA_ERROR_INVALID_VALUE;
  CHECK_EQ(cudaMemsetAsync(memory, 0, 16, nullptr), cudaSuccess);
  p.device->writer().wait_consumed_all();
  CHECK_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  CHECK_EQ(cudaGetLastError(), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(memory, 0, 16, nullptr), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  driver.fill_code = 0;
  CHECK_EQ(cudaMemsetAsync(memory, 0, 16, nullptr), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  // In a replay the program has been told.
  Own own;
  driver.fill_code = CUDA_ERROR_INVALID_VALUE;
  own.session.recovery().set_replaying(true);
  const cmd::cudaMemsetAsync body{0, ring::kDeviceWindowBase, 0, 1, 16};
  CHECK(own.dispatch(Call::cudaMemsetAsync, body).ok());
  CHECK_EQ(own.channel->control().late_error.load(), 0);
  own.session.recovery().set_replaying(false);
  CHECK(own.dispatch(Call::cudaMemsetAsync, body).ok());
  CHECK_EQ(own.channel->control().late_error.load(), 1);
  CHECK_EQ(own.channel->control().sticky_error.load(), 0);
  driver.fill_code = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK(own.dispatch(Call::cudaMemsetAsync, body).ok());
  CHECK_EQ(own.channel->control().sticky_error.load(), 700);
}

CHECK_MAIN
