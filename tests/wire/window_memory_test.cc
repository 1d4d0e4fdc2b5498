// Memory of the window as real drivers are asked for it: what it may be used for, and what happens
// when there is none. The driver is of the test's making.
#include <vector>

#include "api/mock_table.h"
#include "check.h"
#include "own_server.h"

using namespace pyft;  // NOLINT: a test

namespace {

constexpr uint64_t kBytes = uint64_t{2} << 20, kAddress = ring::kDeviceWindowBase;

struct Driver {
  bool rdma = false, descriptors = false;  // what the device says it supports
  bool refuses = false;                    // all the same
  int none_left = 0;                       // so many times
  std::vector<CUmemAllocationProp> asked;
  int made = 0;
} driver;

CUresult attribute(int* value, CUdevice_attribute which, CUdevice) {
  *value = (which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED && driver.rdma) ||
           (which == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED &&
            driver.descriptors);
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp* prop,
                unsigned long long) {
  driver.asked.push_back(*prop);
  if (driver.none_left > 0) return --driver.none_left, CUDA_ERROR_OUT_OF_MEMORY;
  if (driver.refuses && (prop->allocFlags.gpuDirectRDMACapable || prop->requestedHandleTypes))
    return CUDA_ERROR_NOT_SUPPORTED;
  *handle = static_cast<CUmemGenericAllocationHandle>(++driver.made);
  return CUDA_SUCCESS;
}

const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.cuDeviceGetAttribute = attribute;
    t.cuMemCreate = create;
    return t;
  }();
  return made;
}

struct Neighbours : server::RoomMaker {
  explicit Neighbours(bool have_some) : have_some(have_some) {}
  bool make_room() override { return ++asked, have_some; }
  const bool have_some;
  int asked = 0;
};

void allocate(OwnServer& server, uint64_t number = 0) {
  CHECK(
      server.dispatch(Call::cudaMalloc, cmd::cudaMalloc{kAddress + number * kBytes, kBytes}).ok());
}

}  // namespace

TEST(memory_is_asked_for_with_what_the_device_supports) {
  for (const bool rdma : {false, true})
    for (const bool descriptors : {false, true}) {
      driver = {rdma, descriptors, false, 0, {}, 0};
      OwnServer server(&table());
      allocate(server);
      CHECK_EQ(driver.asked.size(), 1u);
      CHECK_EQ(driver.asked[0].allocFlags.gpuDirectRDMACapable, rdma ? 1 : 0);
      CHECK_EQ(driver.asked[0].requestedHandleTypes,
               descriptors ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE);
      CHECK_EQ(driver.asked[0].type, CU_MEM_ALLOCATION_TYPE_PINNED);
    }
}

TEST(a_driver_that_refuses_what_it_supports_is_asked_once) {
  driver = {true, true, true, 0, {}, 0};
  OwnServer server(&table());
  allocate(server, 0);
  CHECK_EQ(driver.asked.size(), 2u);
  allocate(server, 1);
  CHECK_EQ(driver.asked.size(), 3u);
  CHECK_EQ(driver.asked[2].requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
  CHECK_EQ(driver.made, 2);
  CHECK_EQ(server.channel->control().late_error.load(), 0);
}

// It is no reason to ask for less.
TEST(memory_that_is_out_keeps_its_flags) {
  driver = {true, true, false, 1, {}, 0};
  OwnServer server(&table());
  CUmemGenericAllocationHandle handle{};
  CHECK_EQ(server::create_memory(server.session, kBytes, &handle), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(driver.asked.size(), 1u);
  CHECK_EQ(server::create_memory(server.session, kBytes, &handle), CUDA_SUCCESS);
  CHECK_EQ(driver.asked[1].allocFlags.gpuDirectRDMACapable, 1);
}

TEST(others_make_room_before_memory_is_out) {
  for (const bool others : {true, false}) {
    driver = {false, false, false, others ? 1 : 2, {}, 0};
    OwnServer server(&table());
    Neighbours neighbours(others);
    server.session.set_room_maker(&neighbours);
    CUmemGenericAllocationHandle handle{};
    const int code = server::create_memory(server.session, kBytes, &handle);
    CHECK_EQ(code, others ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(neighbours.asked, 1);
    CHECK_EQ(driver.asked.size(), others ? 2u : 1u);
  }
  driver = {false, false, false, 5, {}, 0};  // they have not enough
  OwnServer server(&table());
  Neighbours neighbours(true);
  server.session.set_room_maker(&neighbours);
  CUmemGenericAllocationHandle handle{};
  CHECK_EQ(server::create_memory(server.session, kBytes, &handle), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(neighbours.asked, 1);
}

CHECK_MAIN
