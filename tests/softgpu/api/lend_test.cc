// A thread that lends itself to a device, and functions that run where the device's work runs.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "device/device.h"
#include "gate.h"
#include "softgpu.h"
#include "work/handles.h"

namespace {

void store_thread(void* out) {
  *static_cast<std::atomic<std::thread::id>*>(out) = std::this_thread::get_id();
}

int* device_int() {
  void* out = nullptr;
  CHECK_EQ(cudaMalloc(&out, sizeof(int)), cudaSuccess);
  return static_cast<int*>(out);
}

// Only this thread is lent, so that no test is from then on in a lent thread.
void in_lent_thread(const std::function<void()>& test) {
  std::thread([&] {
    while (softgpu_work(0)) {
    }
    test();
  }).join();
}

// How often the thread of this name has gone to sleep.
long sleeps(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::ifstream comm(task.path() / "comm");
    if (!std::getline(comm, line) || line != name) continue;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line))
      if (line.starts_with("voluntary_ctxt_switches:")) return std::stol(line.substr(24));
  }
  return -1;
}

}  // namespace

TEST(published_functions_run_in_stream_order) {
  static std::vector<int> order;
  cudaStream_t stream;
  CHECK_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  Gate gate;
  gate.block(stream);
  for (uintptr_t i = 0; i < 3; ++i)
    CHECK_EQ(
        softgpu_publish(
            stream,
            [](void* data) { order.push_back(static_cast<int>(reinterpret_cast<long>(data))); },
            reinterpret_cast<void*>(i)),
        CUDA_SUCCESS);
  CHECK(order.empty());
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  CHECK_EQ(order.size(), 3u);
  CHECK(order[0] == 0 && order[2] == 2);
  CHECK_EQ(softgpu_publish(stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(softgpu_publish(&gate, store_thread, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST(a_lent_thread_executes_what_it_submits) {
  int* target = device_int();
  in_lent_thread([&] {
    std::atomic<std::thread::id> ran{};
    CHECK_EQ(cudaMemsetAsync(target, 1, sizeof(int), nullptr), cudaSuccess);
    CHECK_EQ(softgpu_publish(nullptr, store_thread, &ran), CUDA_SUCCESS);
    CHECK_EQ(softgpu_work(0), 1);
    CHECK_EQ(softgpu_work(0), 1);
    CHECK(ran.load() == std::this_thread::get_id());
    CHECK_EQ(softgpu_work(0), 0);
    CHECK_EQ(softgpu_work(99), 0);
  });
}

TEST(a_lent_thread_executes_what_it_waits_for) {
  int* target = device_int();
  in_lent_thread([&] {
    std::atomic<std::thread::id> ran{};
    CHECK_EQ(cudaMemsetAsync(target, 7, sizeof(int), nullptr), cudaSuccess);
    CHECK_EQ(softgpu_publish(nullptr, store_thread, &ran), CUDA_SUCCESS);
    int value = 0;
    CHECK_EQ(cudaMemcpy(&value, target, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK_EQ(value, 0x07070707);
    CHECK(ran.load() == std::this_thread::get_id());
    cudaEvent_t event;
    CHECK_EQ(cudaEventCreate(&event), cudaSuccess);
    CHECK_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
    CHECK_EQ(cudaEventSynchronize(event), cudaSuccess);
  });
}

// Of a large copy each piece is such a wait.
TEST(a_wait_in_a_lent_thread_wakes_nobody) {
  int* target = device_int();
  in_lent_thread([&] {
    int value = 0;
    const auto copy = [&] {
      CHECK_EQ(softgpu_publish(nullptr, [](void*) {}, nullptr), CUDA_SUCCESS);
      CHECK_EQ(cudaMemcpy(&value, target, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    };
    copy();
    const long before = sleeps("softgpu0");
    CHECK(before >= 0);
    for (int i = 0; i < 50; ++i) {
      copy();
      std::this_thread::sleep_for(
          std::chrono::milliseconds(1));  // a thread that is woken gets a processor
    }
    CHECK(sleeps("softgpu0") - before < 10);
  });
}

TEST(on_an_idle_stream_functions_are_published_in_the_call) {
  cudaStream_t other;
  CHECK_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::atomic<std::thread::id> ran{}, held{};
  CHECK_EQ(softgpu_publish(nullptr, store_thread, &ran), CUDA_SUCCESS);
  CHECK(ran.load() == std::this_thread::get_id());
  // Not past work of another stream that the legacy stream comes after, nor of its own.
  cudaStream_t blocking;
  CHECK_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  Gate gate;
  gate.block(blocking);
  CHECK_EQ(softgpu_publish(nullptr, store_thread, &held), CUDA_SUCCESS);
  ran = std::thread::id{};
  CHECK_EQ(softgpu_publish(other, store_thread, &ran), CUDA_SUCCESS);
  CHECK(ran.load() == std::this_thread::get_id());
  ran = std::thread::id{};
  CHECK_EQ(softgpu_publish(blocking, store_thread, &ran), CUDA_SUCCESS);
  CHECK(held.load() == std::thread::id{} && ran.load() == std::thread::id{});
  gate.open();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK(held.load() != std::thread::id{} && ran.load() != std::thread::id{});
}

TEST(a_pageable_source_needs_no_snapshot_on_an_idle_stream) {
  int* target = device_int();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  int source = 1, value = 0;
  CHECK_EQ(cudaMemcpyAsync(target, &source, sizeof source, cudaMemcpyHostToDevice, nullptr),
           cudaSuccess);
  source = 2;
  CHECK_EQ(cudaMemcpy(&value, target, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(value, 1);
  // Behind work of its stream and of the legacy stream it is, and keeps its place.
  cudaStream_t blocking;
  CHECK_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  Gate gate;
  gate.block(nullptr);
  CHECK_EQ(cudaMemcpyAsync(target, &source, sizeof source, cudaMemcpyHostToDevice, blocking),
           cudaSuccess);
  source = 3;
  CHECK_EQ(*target, 1);  // device memory of a soft GPU can be read
  gate.open();
  CHECK_EQ(cudaMemcpy(&value, target, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(value, 2);
}

// What the lent thread cannot execute, because it is not ready yet, goes to the worker.
TEST(what_becomes_ready_later_does_not_need_the_lent_thread) {
  int* target = device_int();
  int* word = nullptr;
  CHECK_EQ(cudaHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0), cudaSuccess);
  *word = 0;
  std::atomic<std::thread::id> ran{};
  in_lent_thread([&] {
    Gate gate;
    gate.block(nullptr);  // a host function: the stream is held by the callback thread
    CHECK_EQ(softgpu_publish(nullptr, store_thread, &ran), CUDA_SUCCESS);
    CHECK_EQ(cuStreamWaitValue32_v2(nullptr, reinterpret_cast<CUdeviceptr>(word), 1, 0),
             CUDA_SUCCESS);
    CHECK_EQ(cudaMemsetAsync(target, 5, sizeof(int), nullptr), cudaSuccess);
    while (softgpu_work(0)) {
    }
    gate.open();
    while (ran.load() == std::thread::id{}) std::this_thread::yield();
    CHECK(ran.load() != std::this_thread::get_id());
  });
  *word = 1;
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  int value = 0;
  CHECK_EQ(cudaMemcpy(&value, target, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(value, 0x05050505);
}

TEST(other_threads_wait_for_a_lent_one) {
  int* target = device_int();
  std::atomic<bool> submitted{false};
  std::thread lent([&] {
    while (softgpu_work(0)) {
    }
    CHECK_EQ(cudaMemsetAsync(target, 3, sizeof(int), nullptr), cudaSuccess);
    submitted = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    while (softgpu_work(0)) {
    }
  });
  while (!submitted) std::this_thread::yield();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  int value = 0;
  CHECK_EQ(cudaMemcpy(&value, target, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(value, 0x03030303);
  lent.join();
}

// Two suspended streams, resumed in the other order: none waits for another.
TEST(a_suspended_stream_stands_still_until_it_is_resumed) {
  cudaStream_t streams[2];
  std::atomic<bool> reached[2] = {};
  int* target = device_int();
  int values[2] = {};
  for (int i = 0; i < 2; ++i) {
    CHECK_EQ(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), cudaSuccess);
    CHECK_EQ(softgpu_suspend(
                 streams[i], [](void* data) { *static_cast<std::atomic<bool>*>(data) = true; },
                 &reached[i]),
             CUDA_SUCCESS);
    CHECK_EQ(cudaMemsetAsync(target, i + 1, sizeof(int), streams[i]), cudaSuccess);
  }
  for (int i = 1; i >= 0; --i) {
    while (!reached[i]) std::this_thread::yield();
    CHECK_EQ(cudaStreamQuery(streams[i]), cudaErrorNotReady);
    softgpu_resume(&reached[i]);
    CHECK_EQ(cudaStreamSynchronize(streams[i]), cudaSuccess);
    CHECK_EQ(cudaMemcpy(&values[i], target, sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK_EQ(values[i], 0x01010101 * (i + 1));
  }
  softgpu_resume(&reached[0]);  // of nothing: no effect
}

// Last: device 1 is dead afterwards.
TEST(a_fault_drops_what_is_published_behind_it) {
  // A worker that is only starting would look for work once; after this one it sleeps.
  std::thread([] {
    CHECK_EQ(cudaSetDevice(1), cudaSuccess);
    CHECK_EQ(cudaMemsetAsync(device_int(), 1, sizeof(int), nullptr), cudaSuccess);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }).join();
  std::thread([] {
    CHECK_EQ(cudaSetDevice(1), cudaSuccess);
    while (softgpu_work(1)) {
    }
    std::atomic<std::thread::id> ran{};
    softgpu::Work work;
    work.run = [] {
      return softgpu::Fault{softgpu::FaultKind::kMisalignedAddress, "the test asked for a fault"};
    };
    softgpu::device(1).scheduler().submit(softgpu::find_stream(nullptr), std::move(work));
    CHECK_EQ(softgpu_publish(nullptr, store_thread, &ran), CUDA_SUCCESS);
    CHECK_EQ(softgpu_work(1), 1);
    CHECK_EQ(softgpu_work(1), 0);
    CHECK(ran.load() == std::thread::id{});
    CHECK_EQ(softgpu_publish(nullptr, store_thread, &ran), CUDA_ERROR_MISALIGNED_ADDRESS);
    CHECK_EQ(cudaDeviceSynchronize(), cudaErrorMisalignedAddress);
  }).join();
}

CHECK_MAIN
