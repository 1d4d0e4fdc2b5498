#include "client/profile/read_profile.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "api/commands.h"
#include "api/profile_records.h"
#include "client/device/device.h"
#include "client/device/stream.h"
#include "profiling/activities.h"
#include "profiling/clock.h"

namespace pyft::client {
namespace {

using Names = std::map<uint32_t, std::string>;

// Of each server, by its incarnation: it tells each name once.
struct Known {
  uint32_t incarnation = 0;
  Names names;
};

std::mutex reading;
Known known[kMaxDevices];

uint32_t incarnation_of(Device& device) {
  return device.channel().control().epoch;
}

struct Told {
  uint32_t incarnation = 0;  // of the server that has told it
  uint64_t dropped = 0;      // records for which it had no room
  std::vector<std::byte> bytes;
};

// All that the server knows now, in answers of a slot's size. Another server in between has none of
// the rest, so it begins anew.
cudaError_t ask(Device& device, bool ends, Told* out) {
  for (uint64_t total = 1; out->bytes.size() < total;) {
    Reply reply;
    const cmd::pyftReadProfile body{out->bytes.size(), ends, 0};
    const cudaError_t error =
        device.call(static_cast<uint16_t>(Call::pyftReadProfile), bytes_of(body), &reply);
    if (error != cudaSuccess) return error;
    const auto incarnation = static_cast<uint32_t>(reply.values[1]);
    if (!out->bytes.empty() && incarnation != out->incarnation) {
      out->bytes.clear();
      continue;
    }
    out->incarnation = incarnation;
    total = reply.values[0];
    out->dropped += reply.values[2];
    if (reply.data.empty()) break;
    out->bytes.insert(out->bytes.end(), reply.data.begin(), reply.data.end());
  }
  return cudaSuccess;
}

void put_kernel(const ProfiledWork& work, const std::string& name, uint32_t device,
                const ProfiledEntries::Entry& entry) {
  CUpti_ActivityKernel10 record = profiling::kernel_record(name);
  profiling::place(&record, device, work.stream, entry.call);
  record.start = work.start;
  record.end = work.end;
  int32_t* const grid[] = {&record.gridX, &record.gridY, &record.gridZ};
  for (int i = 0; i < 3; ++i) *grid[i] = static_cast<int32_t>(work.grid[i]);
  record.blockX = static_cast<int32_t>(work.block[0]);
  record.blockY = static_cast<int32_t>(work.block[1]);
  record.blockZ = static_cast<int32_t>(work.block[2]);
  record.staticSharedMemory = static_cast<int32_t>(work.static_shared);
  record.dynamicSharedMemory = static_cast<int32_t>(work.dynamic_shared);
  record.localMemoryPerThread = work.local;
  record.registersPerThread = static_cast<uint16_t>(work.registers);
  record.launchType = work.how;
  profiling::buffers().put(record);
}

void put_copy(const ProfiledWork& work, uint32_t device, const ProfiledEntries::Entry& entry) {
  CUpti_ActivityMemcpy6 record = profiling::copy_record(
      static_cast<CUpti_ActivityMemoryKind>(work.dst_kind),
      static_cast<CUpti_ActivityMemoryKind>(work.src_kind), work.bytes, false);
  record.copyKind = work.copy_kind;
  profiling::place(&record, device, work.stream, entry.call);
  record.start = work.start;
  record.end = work.end;
  profiling::buffers().put(record);
}

void put_fill(const ProfiledWork& work, uint32_t device, const ProfiledEntries::Entry& entry) {
  CUpti_ActivityMemset4 record = profiling::fill_record(
      static_cast<CUpti_ActivityMemoryKind>(work.dst_kind), work.value, work.bytes);
  profiling::place(&record, device, work.stream, entry.call);
  record.start = work.start;
  record.end = work.end;
  profiling::buffers().put(record);
}

void put(const ProfiledWork& work, const Names& names, uint32_t device,
         const ProfiledEntries::Entry& entry) {
  if (work.kind == ProfiledKind::kKernel && entry.kinds & profiling::kKernels) {
    const auto name = names.find(work.name);
    put_kernel(work, name == names.end() ? "unknown" : name->second, device, entry);
  } else if (work.kind == ProfiledKind::kCopy && entry.kinds & profiling::kCopies) {
    put_copy(work, device, entry);
  } else if (work.kind == ProfiledKind::kFill && entry.kinds & profiling::kFills) {
    put_fill(work, device, entry);
  }
}

// The server's bytes: a record, and its name where it is new.
void take(Device& device, const Told& from) {
  const std::vector<std::byte>& told = from.bytes;
  const auto ordinal = static_cast<uint32_t>(device.ordinal());
  Known& all = known[ordinal];
  if (all.incarnation != from.incarnation) all = {from.incarnation, {}};
  const profiling::RecordTime time;
  ProfiledWork work;
  for (size_t at = 0; at + sizeof work <= told.size();) {
    std::memcpy(&work, told.data() + at, sizeof work);
    at += sizeof work;
    if (work.name_bytes > told.size() - at) break;
    if (work.name_bytes)
      all.names[work.name].assign(reinterpret_cast<const char*>(told.data()) + at, work.name_bytes);
    at += (work.name_bytes + uint64_t{7}) / 8 * 8;
    work.start = time.of(work.start);
    work.end = std::max(time.of(work.end), work.start + 1);
    if (const auto entry = device.profiled.see(work.entry)) put(work, all.names, ordinal, *entry);
  }
}

void say_missing(Device& device, uint64_t count, const char* what) {
  profiling::buffers().drop(count);
  say("the profile lacks what device [" + std::to_string(device.ordinal()) + "] has done for [" +
      std::to_string(count) + "] " + what);
}

void read_profile(Device& device) {
  if (!device.profiled.any()) return;
  const bool ends = !profiling::wanted(profiling::kDeviceWork);
  Told told;
  if (ask(device, ends, &told) == cudaSuccess) take(device, told);
  if (told.dropped) say_missing(device, told.dropped, "records: the server had no room for more");
  if (!ends) return;
  const uint64_t lost = device.profiled.end(incarnation_of(device));
  if (lost) say_missing(device, lost, "calls: the server that did it has died since");
}

}  // namespace

void read_profiles() {
  const std::lock_guard lock(reading);
  for (int ordinal = 0; ordinal < kMaxDevices; ++ordinal)
    if (Device* const device = attached_or_null(ordinal)) read_profile(*device);
}

}  // namespace pyft::client
