#include "server/standby_modules.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "api/call_ids.h"
#include "api/commands.h"
#include "ring/object_log.h"
#include "ring/wait.h"

namespace pyft::server {

namespace {

using Bytes = std::span<const std::byte>;

constexpr uint64_t kLeastImage = 16;  // as do_cuModuleLoadData has it

bool is(const ring::EntryHeader& header, Call call) {
  return header.call == static_cast<uint16_t>(call);
}

}  // namespace

void StandbyModules::follow(uint64_t client, UniqueFd fd) {
  struct stat status{};
  if (given_up_ || !fd.valid() || fstat(fd.get(), &status)) return;
  std::string why;
  Log log;
  const auto bytes = static_cast<uint64_t>(status.st_size);
  log.mapping = ring::Mapping::map(fd.get(), bytes, PROT_READ, 0, &why);
  if (!log.mapping.data() || !ring::make_log_view(log.mapping.data(), bytes, &log.view).empty())
    return;
  log.fd = std::move(fd);
  logs_.insert_or_assign(client, std::move(log));
}

// The client writes meanwhile. What is there stays as it is, but for what has ended, until the
// log's beginning is moved: then this look does not count.
void StandbyModules::look(Log& log) {
  Log::Images images;
  std::vector<uint64_t> order;
  std::unordered_map<uint64_t, uint64_t> module_of;  // handle -> sequence number
  const auto each = [&](const ring::EntryHeader& header, Bytes body, Bytes payload) {
    cmd::cuModuleGetFunction function{};
    if (is(header, Call::cuModuleLoadData) && payload.size() >= kLeastImage) {
      module_of[ring::object_key(body)] = header.seq;
      const auto known = log.images.find(header.seq);
      const ImageKey key = known != log.images.end() ? known->second.key : key_of(payload);
      const auto offset = static_cast<uint64_t>(payload.data() - log.view.object_log);
      images[header.seq] = {key, offset, {}};
      order.push_back(header.seq);
    } else if (is(header, Call::cuModuleGetFunction) && body.size() >= sizeof function) {
      std::memcpy(&function, body.data(), sizeof function);
      if (const auto module = module_of.find(function.module); module != module_of.end())
        images[module->second].functions.emplace(reinterpret_cast<const char*>(payload.data()),
                                                 payload.size());
    }
  };
  const uint64_t begin = begin_of(log);
  std::string damage;
  ring::for_each_object(log.view, each, &damage);
  if (begin_of(log) != begin) return;
  log.images = std::move(images);
  log.order = std::move(order);
  log.begin = begin;
}

uint64_t StandbyModules::begin_of(const Log& log) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return log.view.header->object_log_begin.load(std::memory_order_seq_cst);
}

// Of each as many as the client has that has most of them.
void StandbyModules::count_wanted() {
  wanted_.clear();
  for (const auto& [client, log] : logs_) {
    Counts mine;
    for (const auto& [seq, image] : log.images)
      wanted_[image.key] = std::max(wanted_[image.key], ++mine[image.key]);
  }
}

bool StandbyModules::unload_surplus() {
  Counts have;
  for (const ImageKey& key : ready_.keys())
    if (++have[key] > wanted_[key]) return ready_.unload_one(key), true;
  return false;
}

bool StandbyModules::load_missing() {
  Counts have;
  for (const ImageKey& key : ready_.keys()) ++have[key];
  for (const auto& [client, log] : logs_) {
    Counts mine;
    for (const uint64_t seq : log.order) {
      const Image& image = log.images.at(seq);
      if (++mine[image.key] <= have[image.key] || refused_.contains(image.key)) continue;
      // Those behind it would come to lie elsewhere than in the program's order.
      if (!ready_.has_room(image.key.bytes)) break;
      return load(log, image);
    }
  }
  return false;
}

bool StandbyModules::load(const Log& log, const Image& image) {
  const std::byte* const from = log.view.object_log + image.offset;
  std::vector<std::byte> copy(from, from + image.key.bytes);
  if (begin_of(log) != log.begin) return false;  // the next look will find where it is now
  const int code = ready_.load(std::move(copy));
  if (code) refused_.insert(image.key);
  if (code == CUDA_ERROR_OUT_OF_MEMORY) give_up();
  return true;
}

void StandbyModules::look_up_functions() {
  for (const auto& [client, log] : logs_)
    for (const auto& [seq, image] : log.images) ready_.look_up(image.key, image.functions);
}

int StandbyModules::turn() {
  if (given_up_ || logs_.empty()) return kLookMs;
  const uint64_t began = ring::now_ns();
  for (auto& [client, log] : logs_) look(log);
  count_wanted();
  const bool worked = unload_surplus() || load_missing();
  look_up_functions();
  const uint64_t rest_ms = (ring::now_ns() - began) * kRest / 1'000'000 + 1;
  return worked ? static_cast<int>(std::min<uint64_t>(rest_ms, kLookMs)) : kLookMs;
}

void StandbyModules::give_up() {
  given_up_ = true;
  logs_.clear();
  ready_.unload_all();
}

}  // namespace pyft::server
