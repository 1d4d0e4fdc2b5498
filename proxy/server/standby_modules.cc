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

// The client writes meanwhile. What is read of an entry that is moved just now is not found again,
// or another image is loaded, which nobody asks for: `choose` compares.
void StandbyModules::look(Log& log) {
  std::unordered_map<uint64_t, Image> before = std::exchange(log.images, {});
  std::unordered_map<uint64_t, uint64_t> module_of;  // handle -> sequence number
  log.order.clear();
  log.begin = log.view.header->object_log_begin.load(std::memory_order_seq_cst);
  const auto each = [&](const ring::EntryHeader& header, Bytes body, Bytes payload) {
    if (is(header, Call::cuModuleLoadData) && payload.size() >= kLeastImage) {
      module_of[ring::object_key(body)] = header.seq;
      const auto known = before.find(header.seq);
      const bool same = known != before.end() && known->second.key.bytes == payload.size();
      const auto offset = static_cast<uint64_t>(payload.data() - log.view.object_log);
      log.images[header.seq] = {same ? known->second.key : key_of(payload), offset, {}};
      log.order.push_back(header.seq);
    } else if (is(header, Call::cuModuleGetFunction) &&
               body.size() >= sizeof(cmd::cuModuleGetFunction)) {
      cmd::cuModuleGetFunction command;
      std::memcpy(&command, body.data(), sizeof command);
      if (const auto module = module_of.find(command.module); module != module_of.end())
        log.images[module->second].functions.emplace(reinterpret_cast<const char*>(payload.data()),
                                                     payload.size());
    }
  };
  std::string damage;
  ring::for_each_object(log.view, each, &damage);
}

// As many as the client has that has most of them.
size_t StandbyModules::wanted(const ImageKey& key) const {
  size_t most = 0;
  for (const auto& [client, log] : logs_)
    most = std::max(most, static_cast<size_t>(std::ranges::count_if(
                              log.images, [&](const auto& one) { return one.second.key == key; })));
  return most;
}

bool StandbyModules::unload_surplus() {
  for (const ImageKey& key : ready_.keys())
    if (ready_.count(key) > wanted(key)) return ready_.unload_one(key), true;
  return false;
}

bool StandbyModules::load_missing() {
  for (const auto& [client, log] : logs_)
    for (const uint64_t seq : log.order) {
      const Image& image = log.images.at(seq);
      if (ready_.count(image.key) >= wanted(image.key) ||
          std::ranges::find(refused_, image.key) != refused_.end())
        continue;
      if (ready_.has_room(image.key.bytes)) return load(log, image);
    }
  return false;
}

bool StandbyModules::load(const Log& log, const Image& image) {
  const std::byte* const from = log.view.object_log + image.offset;
  std::vector<std::byte> copy(from, from + image.key.bytes);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Else it has been moved, and will be found where it is now.
  if (log.view.header->object_log_begin.load() != log.begin || key_of(copy) != image.key)
    return false;
  const int code = ready_.load(std::move(copy));
  if (code) refused_.push_back(image.key);
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
