#pragma once

#include <string>

namespace softgpu::exec {

// A kernel's name as its source has it, without parameters: [scale<float>] of [_Z5scaleIfEvPT_].
// Long ones are cut; what is no C++ name stays as it is.
std::string readable_kernel_name(const std::string& symbol);

}  // namespace softgpu::exec
