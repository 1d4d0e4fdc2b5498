// The settings of `upset` and `stuck`. Each function returns a sentence, empty if all is well.
#ifndef SOFTGPU_FAULT_UPSET_WORDS_H_
#define SOFTGPU_FAULT_UPSET_WORDS_H_

#include <string>
#include <string_view>

#include "core/upset.h"

namespace softgpu {

std::string read_upset(std::string_view name, std::string_view value, UpsetAim* aim);
std::string read_stuck(std::string_view name, std::string_view value, UpsetAim* aim);
// With all settings read.
std::string check_stuck(const UpsetAim& aim);

}  // namespace softgpu

#endif  // SOFTGPU_FAULT_UPSET_WORDS_H_
