// Values of settings, as faults on request spell them.
#ifndef SOFTGPU_FAULT_SETTING_VALUE_H_
#define SOFTGPU_FAULT_SETTING_VALUE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace softgpu {

std::string bracketed(std::string_view text);

// Digits only, decimal or 0x...; false for anything else.
bool whole_number(std::string_view text, uint64_t* value);

// A sentence if it is no whole number of the range, empty if all is well.
std::string number(std::string_view name, std::string_view text, uint64_t least, uint64_t most,
                   uint64_t* value);

}  // namespace softgpu

#endif  // SOFTGPU_FAULT_SETTING_VALUE_H_
