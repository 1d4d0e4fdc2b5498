#include "server/session/nccl_config.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace pyft::server {
namespace {

const char* kept(const char* name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return *name ? names.insert(name).first->c_str() : nullptr;
}

template <size_t N>
bool ends(const char (&text)[N]) {
  return std::ranges::find(text, '\0') != text + N;
}

}  // namespace

bool NcclConfig::read(std::span<const std::byte> settings) {
  given_ = !settings.empty();
  config_ = empty_nccl_config();
  if (!given_) return true;
  NcclSettings from;
  if (settings.size() != sizeof from) return false;
  std::memcpy(&from, settings.data(), sizeof from);
  if (!ends(from.net_name) || !ends(from.comm_name)) return false;
  for (size_t i = 0; i < std::size(kNcclNumbers); ++i)
    config_.*kNcclNumbers[i].field = from.numbers[i];
  config_.blocking = 1;  // the calls here wait for their result
  config_.netName = kept(from.net_name);
  config_.commName = kept(from.comm_name);
  return true;
}

}  // namespace pyft::server
