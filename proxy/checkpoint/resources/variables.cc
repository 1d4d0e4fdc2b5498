#include "checkpoint/resources/variables.h"

#include <algorithm>

namespace pyft::checkpoint {

void save_variables(DeviceState& state, std::vector<ring::ManifestPlace>* places) {
  state.variables(places);
}

VariableRestorer::VariableRestorer(const std::vector<ring::ManifestPlace>& before,
                                   DeviceState& state, Placement& placement)
    : before_(before), state_(state), placement_(placement) {
  for (const ring::ManifestPlace& place : before)
    if (place.owner) first_.emplace(place.owner, place);
}

std::optional<size_t> VariableRestorer::choose(std::span<const ModuleImage> modules) {
  return placement_.choose_modules(modules, before_);
}

// What follows the creation of a module takes no place.
std::string VariableRestorer::place(uint64_t object) {
  const auto place = object ? first_.find(object) : first_.end();
  if (place == first_.end() || !placed_.insert(object).second) return {};
  const int code = placement_.place(place->second);
  if (!code) return {};
  return "the device does not take address [" + std::to_string(place->second.address) +
         "]: code [" + std::to_string(code) + "]";
}

std::string VariableRestorer::check() {
  if (placement_.relocates()) return placement_.relocate(before_);
  std::vector<ring::ManifestPlace> now;
  state_.variables(&now);
  for (const ring::ManifestPlace& want : before_) {
    const bool there = !want.owner || std::ranges::any_of(now, [&](const auto& have) {
      return have.owner == want.owner && have.address == want.address && have.bytes == want.bytes;
    });
    if (!there)
      return "variables of [" + std::to_string(want.bytes) + "] bytes at [" +
             std::to_string(want.address) + "] are not there again";
  }
  return {};
}

}  // namespace pyft::checkpoint
