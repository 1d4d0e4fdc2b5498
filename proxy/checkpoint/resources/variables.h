// Variables of modules (__device__, __constant__): memory that comes and goes with a module.
#ifndef PYFT_CHECKPOINT_RESOURCES_VARIABLES_H_
#define PYFT_CHECKPOINT_RESOURCES_VARIABLES_H_

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "checkpoint/device.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

// Save: where they lie, by module. What is in them is memory like any other (device_memory.h).
void save_variables(DeviceState& state, std::vector<ring::ManifestPlace>* places);

// Restore: they come to lie where they lay when their module is made again, or it is found out
// where they lie now.
class VariableRestorer {
 public:
  // `before`: the places of the committed snapshot. All arguments outlive this.
  VariableRestorer(const std::vector<ring::ManifestPlace>& before, DeviceState& state,
                   Placement& placement);
  // Before objects are made: the modules, in order. How many are loaded already; nothing where none
  // ever are.
  std::optional<size_t> choose(std::span<const ModuleImage> modules);
  // Before an entry that creates this object is executed. Empty, or what is wrong.
  std::string place(uint64_t object);
  // When all objects are made.
  std::string check();

 private:
  const std::vector<ring::ManifestPlace>& before_;
  DeviceState& state_;
  Placement& placement_;
  std::unordered_map<uint64_t, ring::ManifestPlace> first_;  // by module
  std::unordered_set<uint64_t> placed_;                      // modules
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RESOURCES_VARIABLES_H_
