#include "server/profile/collected.h"

#include <string_view>

namespace pyft::server {
namespace {

template <class Record>
const Record& as(const CUpti_Activity& record) {
  return reinterpret_cast<const Record&>(record);
}

template <class Record>
ProfiledWork times_of(const Record& record, ProfiledKind kind) {
  ProfiledWork work{};
  work.kind = kind;
  work.start = record.start;
  work.end = record.end;
  work.stream = record.streamId;
  return work;
}

ProfiledWork kernel(const CUpti_ActivityKernel10& record) {
  ProfiledWork work = times_of(record, ProfiledKind::kKernel);
  const int32_t grid[] = {record.gridX, record.gridY, record.gridZ};
  const int32_t block[] = {record.blockX, record.blockY, record.blockZ};
  for (int i = 0; i < 3; ++i) {
    work.grid[i] = static_cast<uint32_t>(grid[i]);
    work.block[i] = static_cast<uint32_t>(block[i]);
  }
  work.static_shared = static_cast<uint32_t>(record.staticSharedMemory);
  work.dynamic_shared = static_cast<uint32_t>(record.dynamicSharedMemory);
  work.local = record.localMemoryPerThread;
  work.registers = record.registersPerThread;
  work.how = record.launchType;
  return work;
}

ProfiledWork copy(const CUpti_ActivityMemcpy6& record) {
  ProfiledWork work = times_of(record, ProfiledKind::kCopy);
  work.bytes = record.bytes;
  work.copy_kind = record.copyKind;
  work.src_kind = record.srcKind;
  work.dst_kind = record.dstKind;
  return work;
}

ProfiledWork fill(const CUpti_ActivityMemset4& record) {
  ProfiledWork work = times_of(record, ProfiledKind::kFill);
  work.bytes = record.bytes;
  work.value = record.value;
  work.dst_kind = static_cast<uint8_t>(record.memoryKind);
  return work;
}

}  // namespace

void Collected::add(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& id = as<CUpti_ActivityExternalCorrelation>(record);
      entries_[id.correlationId] = id.externalId;
      break;
    }
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& of = as<CUpti_ActivityKernel10>(record);
      work_.push_back({of.correlationId, kernel(of)});
      work_.back().work.name = number_of(of.name);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& of = as<CUpti_ActivityMemcpy6>(record);
      work_.push_back({of.correlationId, copy(of)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& of = as<CUpti_ActivityMemset4>(record);
      work_.push_back({of.correlationId, fill(of)});
      break;
    }
    default:  // calls, which are the server's and not the program's
      break;
  }
}

void Collected::add(const backend::Cupti& cupti, uint8_t* buffer, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cupti.next_record(buffer, valid, &record) == CUPTI_SUCCESS) add(*record);
}

// A name is copied while its module is loaded.
uint32_t Collected::number_of(const char* name) {
  if (!name) return 0;
  const auto [known, is_new] = names_.try_emplace(name);
  if (is_new) {
    by_number_.push_back(&*known);
    known->second.number = static_cast<uint32_t>(by_number_.size());
  }
  return known->second.number;
}

void Collected::append(ProfiledWork work, std::vector<std::byte>* out) {
  std::string_view name;
  if (work.name && !by_number_[work.name - 1]->second.told) {
    by_number_[work.name - 1]->second.told = true;
    name = by_number_[work.name - 1]->first;
  }
  work.name_bytes = static_cast<uint32_t>(name.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(&work);
  out->insert(out->end(), bytes, bytes + sizeof work);
  const auto* letters = reinterpret_cast<const std::byte*>(name.data());
  out->insert(out->end(), letters, letters + name.size());
  out->resize((out->size() + 7) / 8 * 8);
}

std::vector<std::byte> Collected::take() {
  std::vector<std::byte> out;
  for (Work& work : work_) {
    const auto entry = entries_.find(work.call);
    if (entry == entries_.end()) continue;
    work.work.entry = entry->second;
    append(work.work, &out);
  }
  work_.clear();
  return out;
}

}  // namespace pyft::server
