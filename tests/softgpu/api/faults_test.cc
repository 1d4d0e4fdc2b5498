// Faults on request (README.md), on launches that are functions of this test.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "check.h"
#include "comes.h"
#include "injection.h"

namespace {

softgpu_state state(int device) {
  softgpu_state now{};
  CHECK_EQ(softgpu_device_state(device, &now), 0);
  return now;
}

// Every call reports the error from now on, on this device only.
void expect_dead(int device, cudaError_t error, int needs) {
  cudaSetDevice(device);
  void* out = nullptr;
  CHECK_EQ(cudaDeviceSynchronize(), error);
  CHECK_EQ(cudaMalloc(&out, 8), error);
  CHECK_EQ(cudaStreamQuery(nullptr), error);
  CHECK_EQ(cudaGetLastError(), error);
  CHECK_EQ(cudaGetLastError(), error);
  CHECK_EQ(state(device).error, static_cast<int>(error));
  CHECK_EQ(state(device).needs, needs);
  cudaSetDevice(0);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace

TEST(a_bad_request_is_refused_by_a_sentence_that_names_it) {
  const std::pair<const char*, const char*> bad[] = {
      {"melt",
       "the fault [melt] is not understood: [melt] is none of [error, lost, ecc, contained, "
       "hang, slow, flip, upset, stuck, copy, resume, clear]"},
      {"lost; error  at=3 ", "the fault [error  at=3] is not understood: it has no [code]"},
      {"error code=0",
       "the fault [error code=0] is not understood: [code] is [0], not a whole number from [1] to "
       "[999]"},
      {"hang at=-1",
       "the fault [hang at=-1] is not understood: [at] is [-1], not a whole number from [1]"},
      {"hang at=1 in=2",
       "the fault [hang at=1 in=2] is not understood: [at] and [in] exclude each other"},
      {"lost soon", "the fault [lost soon] is not understood: [soon] is no <name>=<value>"},
      {"lost bit=1", "the fault [lost bit=1] is not understood: [bit] is no setting of it"},
      {"lost device=8",
       "the fault [lost device=8] is not understood: [device] is [8], not a whole number from [0] "
       "to [7]"},
      {"slow", "the fault [slow] is not understood: it needs either [factor] or [us]"},
      {"slow factor=0.5",
       "the fault [slow factor=0.5] is not understood: [factor] is [0.5], not a number from [1] to "
       "[1000000]"},
      {"flip bit=3",
       "the fault [flip bit=3] is not understood: it needs one of [address, allocation, size, "
       "result, live]"},
      {"flip address=1 size=2",
       "the fault [flip address=1 size=2] is not understood: it has two targets"},
      {"0:700",
       "the fault [0:700] is not understood: [launch] is [0], not a whole number from [1]"},
      {"hang:0", "the fault [hang:0] is not understood: [at] is [0], not a whole number from [1]"},
      {"resume:1", "the fault [resume:1] is not understood: [at] is no setting of it"},
      {"lost,device=8",
       "the fault [lost,device=8] is not understood: [device] is [8], not a whole number from [0] "
       "to [7]"},
      {"lost device=7", "the fault [lost device=7] is for a device that is not there"},
  };
  for (const auto& [text, sentence] : bad) CHECK_EQ(inject(text), std::string(sentence));
  CHECK_EQ(state(0).error, 0);
  char shortened[10];
  CHECK_EQ(softgpu_check_faults("melt", shortened, sizeof shortened), 1);
  CHECK_EQ(std::string(shortened), std::string("the fault"));
  CHECK_EQ(softgpu_check_faults("lost:9,device=1; slow, factor=2\nerror:3,code=700", nullptr, 0),
           0);
  CHECK_EQ(softgpu_check_faults("# nothing\n lost device=7 # not done\n", nullptr, 0), 0);
}

TEST(a_sticky_error_comes_at_the_launch_it_was_asked_for) {
  launch(1);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(inject("error code=716 device=1 in=3"), std::string());
  int ran = 0;
  for (int i = 0; i < 4; ++i) {
    launch(1, "counted", {}, [&] { ++ran; });
    launch(0);  // of another device: not counted
  }
  cudaSetDevice(1);
  cudaDeviceSynchronize();
  CHECK_EQ(ran, 2);
  expect_dead(1, cudaErrorMisalignedAddress, SOFTGPU_NEEDS_NEW_PROCESS);
  CHECK_EQ(inject("error code=1 device=1 at=2"),
           std::string("the fault [error code=1 device=1 at=2] comes too late, after launch [4]"));
}

TEST(lost_and_broken_devices) {
  CHECK_EQ(inject("lost device=2; ecc device=3; contained device=4"), std::string());
  expect_dead(2, cudaErrorUnknown, SOFTGPU_NEEDS_REPLACEMENT);
  expect_dead(3, cudaErrorECCUncorrectable, SOFTGPU_NEEDS_RESET);
  expect_dead(4, cudaErrorContained, SOFTGPU_NEEDS_NEW_PROCESS);
}

TEST(a_hanging_launch_holds_its_stream_until_it_is_resumed) {
  std::atomic<int> ran{0};
  cudaSetDevice(0);
  cudaStream_t other;
  CHECK_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  CHECK_EQ(inject("hang device=0 in=1"), std::string());
  const auto before = state(0).launches;
  launch(0, "held", {}, [&] { ++ran; });
  launch(0, "behind", {}, [&] { ++ran; });
  CHECK(comes([] { return state(0).hanging == 1; }));
  launch(0, "beside", {}, [&] { ran += 10; }, other);
  CHECK_EQ(cudaStreamSynchronize(other), cudaSuccess);
  CHECK_EQ(ran.load(), 10);
  CHECK_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  CHECK_EQ(inject("resume device=0"), std::string());
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(ran.load(), 12);
  CHECK_EQ(state(0).hanging, 0);
  CHECK_EQ(state(0).launches - before, 3ull);  // a held launch counts once
}

TEST(a_hanging_device_can_still_fail) {
  CHECK_EQ(inject("hang device=5 in=1"), std::string());
  launch(5);
  CHECK(comes([] { return state(5).hanging == 1; }));
  std::thread waiter([] {
    cudaSetDevice(5);
    CHECK_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  });
  CHECK_EQ(softgpu_fail(5, 719), 0);
  waiter.join();
  expect_dead(5, cudaErrorLaunchFailure, SOFTGPU_NEEDS_NEW_PROCESS);
}

TEST(softgpu_fail_takes_the_codes_that_devices_fail_with) {
  CHECK_EQ(softgpu_fail(0, 1), 1);
  CHECK_EQ(softgpu_fail(0, 2), 1);
  CHECK_EQ(softgpu_fail(9, 700), 1);
  CHECK_EQ(softgpu_fail(-1, 700), 1);
}

TEST(a_slow_device_takes_at_least_the_time_asked_for) {
  CHECK_EQ(inject("slow us=20000 device=0 times=2"), std::string());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) launch(0);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(40));
}

TEST(a_bit_of_an_allocation_flips) {
  cudaSetDevice(0);
  uint8_t* const first = zeros<uint8_t>(512);
  uint8_t* const second = zeros<uint8_t>(5 << 20);
  uint8_t* const third = zeros<uint8_t>(5 << 20);
  CHECK_EQ(
      inject("flip address=" + std::to_string(reinterpret_cast<uint64_t>(first)) + " byte=3 bit=1"),
      std::string());
  CHECK_EQ(first[3], 2);
  CHECK_EQ(inject("flip size=5242880 byte=9 bit=7"), std::string());
  CHECK_EQ(second[9], 128);
  CHECK_EQ(inject("flip size=5242880 allocation=2"), std::string());
  CHECK_EQ(third[0], 1);
  CHECK_EQ(inject("flip address=4096"), std::string());  // says on stderr that nothing is there
  CHECK_EQ(cudaFree(second), cudaSuccess);
  CHECK_EQ(cudaFree(third), cudaSuccess);
}

TEST(a_bit_of_a_result_flips) {
  cudaSetDevice(0);
  uint8_t* const in = zeros<uint8_t>(512);
  uint8_t* const out = zeros<uint8_t>(512);
  const auto fill = [=] { std::memset(out + 16, 0x40, 16); };
  CHECK_EQ(inject("flip result=2 kernel=fill byte=17 bit=0"), std::string());
  launch(0, "another", {in, out}, [] {});
  launch(0, "the_fill_kernel", {nullptr, in, in, out}, fill);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(out[17], 0x41);
  // Launches without pointers cannot do it; the first changed byte is in the second pointer.
  CHECK_EQ(cudaMemset(out, 0, 512), cudaSuccess);
  CHECK_EQ(inject("flip result=changed byte=2 bit=1"), std::string());
  launch(0);
  launch(0, "fill", {in, out}, fill);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(out[18], 0x42);
  CHECK_EQ(in[0] | in[17] | out[17], 0x40);
}

TEST(requests_repeat_and_are_cleared) {
  cudaSetDevice(0);
  uint8_t* const byte = zeros<uint8_t>(1);
  const std::string at = "flip address=" + std::to_string(reinterpret_cast<uint64_t>(byte));
  CHECK_EQ(inject(at + " kernel=repeat every=2 times=2 at=2"), std::string());
  std::vector<int> seen;
  for (int i = 0; i < 6; ++i) {
    launch(0, "repeated", {}, [&] { seen.push_back(*byte); });
    launch(0);
  }
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK(seen == std::vector<int>({0, 1, 1, 0, 0, 0}));
  CHECK_EQ(inject(at + " in=1; " + at + " kernel=x; clear"), std::string());
  launch(0, "x", {}, [] {});
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(static_cast<int>(*byte), 0);
}

TEST(lines_added_to_the_control_file_are_obeyed) {
  const char* const path = std::getenv("SOFTGPU_CONTROL");
  CHECK(path != nullptr);
  if (!path) return;
  std::ofstream(path, std::ios::app) << "nonsense\nlost dev" << std::flush;
  std::ofstream(path, std::ios::app) << "ice=6 # the rest of the line\n";
  CHECK(comes([] { return state(6).error == SOFTGPU_DEVICE_LOST; }));
  // Replaced, as editors do.
  CHECK_EQ(inject("hang device=0"), std::string());
  launch(0);
  CHECK(comes([] { return state(0).hanging == 1; }));
  std::ofstream(std::string(path) + ".new") << "resume\n";
  CHECK_EQ(rename((std::string(path) + ".new").c_str(), path), 0);
  cudaSetDevice(0);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

CHECK_MAIN
