#include "fault/setting_value.h"

#include <cstdlib>

namespace softgpu {

std::string bracketed(std::string_view text) {
  std::string out = "[";
  out += text;
  out += ']';
  return out;
}

bool whole_number(std::string_view text, uint64_t* value) {
  // Digits first: strtoull would take signs and spaces.
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  const std::string copy(text);
  char* end = nullptr;
  *value = std::strtoull(copy.c_str(), &end, 0);
  return *end == 0;
}

std::string number(std::string_view name, std::string_view text, uint64_t least, uint64_t most,
                   uint64_t* value) {
  if (whole_number(text, value) && *value >= least && *value <= most) return "";
  return bracketed(name) + " is " + bracketed(text) + ", not a whole number from [" +
         std::to_string(least) + "]" +
         (most == UINT64_MAX ? "" : " to [" + std::to_string(most) + "]");
}

}  // namespace softgpu
