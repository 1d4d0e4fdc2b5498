#include "server/handlers/ready_modules.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace pyft::server {

namespace {

struct Source {
  ReadyModules* ready = nullptr;
};

}  // namespace

ImageKey key_of(std::span<const std::byte> image) {
  return {image.size(), checkpoint::digest(image.data(), image.size(), checkpoint::DigestKey(0))};
}

bool ReadyModules::has_room(uint64_t bytes) const {
  if (bytes > kMostBytes || bytes_ > kMostBytes - bytes) return false;
  size_t free = 0, total = 0;
  return table_.cudaMemGetInfo && table_.cudaMemGetInfo(&free, &total) == cudaSuccess &&
         free >= total / kFreeShare + bytes;
}

int ReadyModules::load(std::vector<std::byte> image) {
  Ready one;
  if (const int code = table_.cuModuleLoadData(&one.module, image.data())) return code;
  std::string why;  // said by the server whose module it is
  one.variables = find_variables(table_, one.module, image, &why);
  one.key = key_of(image);
  one.image = std::move(image);
  bytes_ += one.image.size();
  all_.push_back(std::move(one));
  list_keys();
  return 0;
}

void ReadyModules::list_keys() {
  keys_.clear();
  std::ranges::transform(all_, std::back_inserter(keys_), &Ready::key);
}

std::list<ReadyModules::Ready>::iterator ReadyModules::unload(std::list<Ready>::iterator one) {
  table_.cuModuleUnload(one->module);
  unloaded_ = true;
  bytes_ -= one->image.size();
  return all_.erase(one);
}

// The one that was loaded last: those before it stay in order.
void ReadyModules::unload_one(const ImageKey& key) {
  const auto last =
      std::find_if(all_.rbegin(), all_.rend(), [&](const Ready& one) { return one.key == key; });
  if (last != all_.rend()) unload(std::prev(last.base()));
  list_keys();
}

void ReadyModules::unload_all() {
  while (!all_.empty()) unload(std::prev(all_.end()));
  list_keys();
}

void ReadyModules::look_up(const ImageKey& key, const std::set<std::string>& functions) {
  for (Ready& one : all_) {
    if (one.key != key) continue;
    for (const std::string& name : functions) {
      CUfunction function = nullptr;
      int registers = 0;
      if (one.functions.insert(name).second &&
          table_.cuModuleGetFunction(&function, one.module, name.c_str()) == CUDA_SUCCESS)
        table_.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
    }
  }
}

// The same bytes loaded twice are two modules.
size_t ReadyModules::choose(std::span<const checkpoint::ModuleImage> wanted,
                            std::span<const ring::ManifestPlace> places) {
  for (Ready& one : all_) one.handle = 0;
  for (const checkpoint::ModuleImage& module : wanted) {
    const ImageKey key = all_.empty() ? ImageKey() : key_of(module.image);
    const auto found = std::ranges::find_if(all_, [&](const Ready& one) {
      return !one.handle && one.key == key && std::ranges::equal(one.image, module.image);
    });
    if (found != all_.end()) found->handle = module.handle;
  }
  if (!are_the_first(wanted) && !lie_where_they_lay(places))
    for (Ready& one : all_) one.handle = 0;
  // The last one first, so that a device which hands out memory in order does so again.
  for (auto one = all_.end(); one != all_.begin();) {
    --one;
    if (!one->handle) one = unload(one);
  }
  list_keys();
  return all_.size();
}

// What was loaded after them for others does not matter.
bool ReadyModules::are_the_first(std::span<const checkpoint::ModuleImage> wanted) const {
  if (unloaded_) return false;
  size_t count = 0;
  bool others = false;
  for (const Ready& one : all_) {
    if (!one.handle) others = true;
    if (one.handle && (others || one.handle != wanted[count++].handle)) return false;
  }
  return true;
}

bool ReadyModules::lie_where_they_lay(std::span<const ring::ManifestPlace> places) const {
  std::map<uint64_t, std::vector<checkpoint::MemoryRange>> of_module;
  for (const ring::ManifestPlace& place : places)
    of_module[place.owner].push_back({place.address, place.bytes});
  return std::ranges::all_of(of_module, [&](const auto& before) {
    const auto one = std::ranges::find(all_, before.first, &Ready::handle);
    return one != all_.end() && std::ranges::equal(one->variables, before.second);
  });
}

bool ReadyModules::take(uint64_t handle, std::span<const std::byte> image, LoadedModule* out) {
  const auto one = std::ranges::find(all_, handle, &Ready::handle);
  if (!handle || one == all_.end() || !std::ranges::equal(one->image, image)) return false;
  *out = {one->module, std::move(one->variables), false};
  bytes_ -= one->image.size();
  all_.erase(one);
  list_keys();
  return true;
}

void use_ready_modules(Session& session, ReadyModules* ready) {
  session.state<Source>().ready = ready;
}

bool take_ready_module(Session& session, uint64_t handle, std::span<const std::byte> image,
                       LoadedModule* out) {
  ReadyModules* const ready = session.state<Source>().ready;
  return ready && session.recovery().restores_objects() && ready->take(handle, image, out);
}

}  // namespace pyft::server
