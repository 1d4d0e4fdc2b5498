#include "core/config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>

#include "core/settings.h"

namespace softgpu {
namespace {

// The device that an entry of CUDA_VISIBLE_DEVICES names: a number, or the beginning of a UUID; -1.
int named_device(const std::string& entry, int installed) {
  char* end = nullptr;
  const long index = std::strtol(entry.c_str(), &end, 10);
  if (!entry.empty() && !*end)
    return index >= 0 && index < installed ? static_cast<int>(index) : -1;
  for (int i = 0; entry.size() > 4 && i < installed; ++i)
    if (uuid_text(i).starts_with(entry)) return i;
  return -1;
}

// Devices named in CUDA_VISIBLE_DEVICES. The list ends at the first entry that names none, as the
// driver does.
int visible_devices(int installed, int* indices) {
  const char* text = settings::cuda_visible_devices();
  std::iota(indices, indices + installed, 0);
  if (!text) return installed;
  int visible = 0;
  const std::string list = text;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string entry = list.substr(at, comma - at);
    const int index = named_device(entry, installed);
    if (index < 0 || visible == installed) break;
    indices[visible++] = index;
    at = comma + 1;
  }
  return visible;
}

}  // namespace

std::string uuid_text(int installed) {
  constexpr unsigned char kBytes[] = "softgpu sm_75 0";  // those of the CUDA device's UUID
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    const unsigned byte = i < 15 ? kBytes[i] : static_cast<unsigned>(installed);
    char digits[8];
    std::snprintf(digits, sizeof digits, dash ? "-%02x" : "%02x", byte);
    text += digits;
  }
  return text;
}

const Config& config() {
  static const Config loaded = [] {
    Config c;
    c.installed = static_cast<int>(std::min<uint64_t>(settings::devices(), kMaxDevices));
    c.devices = visible_devices(c.installed, c.installed_index);
    c.memory_bytes = settings::memory();
    c.sms = static_cast<int>(settings::sms());
    c.blas_threads = static_cast<int>(settings::blas_threads());
    c.modules_anywhere = settings::modules().has_value();
    return c;
  }();
  return loaded;
}

}  // namespace softgpu
