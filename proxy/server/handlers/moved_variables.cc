#include "server/handlers/moved_variables.h"

#include <algorithm>

namespace pyft::server {

namespace {

std::string text(const checkpoint::MemoryRange& range) {
  return "variables of [" + std::to_string(range.bytes) + "] bytes at [" +
         std::to_string(range.address) + "]";
}

bool same_sizes(const std::vector<checkpoint::MemoryRange>& a,
                const std::vector<checkpoint::MemoryRange>& b) {
  return std::ranges::equal(a, b, {}, &checkpoint::MemoryRange::bytes,
                            &checkpoint::MemoryRange::bytes);
}

}  // namespace

// Both are in the order of the module's image, whatever the driver has put where.
std::string MovedVariables::find(const std::map<uint64_t, LoadedModule>& modules,
                                 std::span<const ring::ManifestPlace> before) {
  moves_.clear();
  std::map<uint64_t, std::vector<checkpoint::MemoryRange>> of_module;
  for (const ring::ManifestPlace& place : before)
    of_module[place.owner].push_back({place.address, place.bytes});
  for (auto& [handle, old] : of_module) {
    const auto module = modules.find(handle);
    if (module == modules.end() || !same_sizes(old, module->second.variables))
      return text(old.front()) + " are not there again";
    for (size_t i = 0; i < old.size(); ++i) {
      const uint64_t now = module->second.variables[i].address;
      if (now == old[i].address) continue;
      if (module->second.escaped)
        return text(old[i]) + ", which the program knows, are at [" + std::to_string(now) + "] now";
      moves_.push_back({old[i].address, now, old[i].bytes});
    }
  }
  return {};
}

uint64_t MovedVariables::now_at(uint64_t before) const {
  for (const Move& move : moves_)
    if (before - move.before < move.bytes) return move.now + (before - move.before);
  return before;
}

bool MovedVariables::moved_to(uint64_t now) const {
  return std::ranges::any_of(moves_, [=](const Move& m) { return now - m.now < m.bytes; });
}

}  // namespace pyft::server
