#include "device/device.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/log.h"
#include "device/fault_injection.h"
#include "fault/control_file.h"

namespace softgpu {
namespace {

std::atomic<bool> in_forked_child{false};

void take_control_lines(std::string_view lines) {
  const std::string problem = inject_faults(lines);
  if (!problem.empty()) log_line(SOFTGPU_LOG_WARNING, "[SOFTGPU_CONTROL]: %s", problem.c_str());
}

void log_missed_faults() {
  std::istringstream lines(missed_faults());
  for (std::string line; std::getline(lines, line);) {
    const size_t name = line.starts_with("softgpu: ") ? 9 : 0;
    log_line(SOFTGPU_LOG_WARNING, "%s", line.c_str() + name);
  }
}

using Devices = std::vector<std::unique_ptr<Device>>;

Devices& devices() {
  static Devices* all = [] {
    auto made = std::make_unique<Devices>();
    for (int i = 0; i < config().devices; ++i) made->push_back(std::make_unique<Device>(i));
    pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });
    watch_control_file(take_control_lines);
    std::atexit([] {
      if (forked()) return;
      log_missed_faults();
      stop_faults();
      for (auto& d : devices()) d->scheduler().stop();
    });
    return made.release();
  }();
  return *all;
}

}  // namespace

Device::Device(int index)
    : index_(index),
      memory_(index, config().memory_bytes),
      scheduler_(index),
      legacy_(std::make_shared<Stream>(index, StreamKind::kLegacy, 0, 0)) {
  if (const Fault fault = fault_from_start(index)) scheduler_.fail_now(fault);
}

std::shared_ptr<Stream> Device::thread_stream() {
  thread_local std::map<int, std::shared_ptr<Stream>> streams;
  auto& stream = streams[index_];
  if (!stream)
    stream = std::make_shared<Stream>(index_, StreamKind::kBlocking, 0, next_stream_id());
  return stream;
}

cudaError_t Device::sticky() const {
  return fault_code(scheduler_.fault());
}

int device_count() {
  return config().devices;
}

Device& device(int index) {
  return *devices()[static_cast<size_t>(index)];
}

ThreadDevice& thread_device() {
  thread_local ThreadDevice current;
  return current;
}

uint64_t next_stream_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

bool forked() {
  return in_forked_child.load(std::memory_order_relaxed);
}

}  // namespace softgpu
