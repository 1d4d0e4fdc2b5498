// What programs ask of communicators: checked here, used by the server's library.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "api/nccl_settings.h"
#include "client/collectives/nccl.h"

namespace pyft::client {
namespace {

constexpr size_t kMaxConfigBytes = 4096;

size_t offset_in(const ncclConfig_t& config, const void* field) {
  return static_cast<size_t>(static_cast<const char*>(field) -
                             reinterpret_cast<const char*>(&config));
}

// A program may be made with a newer NCCL, whose config has more at its end. What is not set there
// is as NCCL_CONFIG_INITIALIZER left it: INT_MIN in a number, nothing in an address or a gap.
void say_unknown(const char* call, const ncclConfig_t* given, size_t size) {
  static std::atomic<bool> said{false};
  for (size_t at = sizeof(ncclConfig_t); at + sizeof(int) <= size; at += sizeof(int)) {
    int value = 0;
    std::memcpy(&value, reinterpret_cast<const char*>(given) + at, sizeof value);
    if (value == 0 || value == NCCL_CONFIG_UNDEF_INT || said.exchange(true)) continue;
    say("[" + std::string(call) + "] is given a configuration of [" + std::to_string(size) +
        "] bytes, made for NCCL [" + std::to_string(given->version) + "]: its setting at byte [" +
        std::to_string(at) + "], [" + std::to_string(value) +
        "], is newer than what pyft knows, [" + std::to_string(sizeof(ncclConfig_t)) +
        "] bytes, and is not used");
  }
}

template <size_t N>
bool put(const char* text, char (&out)[N]) {
  if (text) std::strncpy(out, text, N - 1);
  return !text || std::strlen(text) < N;
}

}  // namespace

ncclResult_t add_settings(const char* call, const ncclConfig_t* given,
                          std::vector<std::byte>* payload) {
  if (!given) return ncclSuccess;
  const size_t size = given->size;
  if (given->magic != kNcclConfigMagic || size < offsetof(ncclConfig_t, cgaClusterSize) ||
      size > kMaxConfigBytes)
    return refuse_nccl(call, ncclInvalidArgument,
                       "got a config of [" + std::to_string(size) + "] bytes with magic [" +
                           std::to_string(given->magic) +
                           "]: it was not made with NCCL_CONFIG_INITIALIZER");
  ncclConfig_t config = empty_nccl_config();
  const auto has = [&](const void* field, size_t bytes, unsigned since) {
    return given->version >= since && offset_in(config, field) + bytes <= size;
  };
  const ncclConfig_t known = config;
  std::memcpy(&config, given, std::min(size, sizeof config));
  NcclSettings settings{};
  for (int32_t& number : settings.numbers) number = NCCL_CONFIG_UNDEF_INT;
  for (size_t i = 0; i < std::size(kNcclNumbers); ++i) {
    const NcclNumber& one = kNcclNumbers[i];
    const bool there = has(&(config.*one.field), sizeof(int), one.since);
    settings.numbers[i] = (there ? config : known).*one.field;
  }
  const bool net = has(&config.netName, sizeof config.netName, kNetNameSince);
  if (net && !put(config.netName, settings.net_name))
    return refuse_nccl(call, ncclInvalidArgument,
                       "got a netName of [" + std::to_string(std::strlen(config.netName)) +
                           "] characters: at most [" +
                           std::to_string(sizeof settings.net_name - 1) + "]");
  // A name for people, of which the beginning will do.
  if (has(&config.commName, sizeof config.commName, kCommNameSince))
    put(config.commName, settings.comm_name);
  say_unknown(call, given, size);
  const auto* bytes = reinterpret_cast<const std::byte*>(&settings);
  payload->insert(payload->end(), bytes, bytes + sizeof settings);
  return ncclSuccess;
}

}  // namespace pyft::client
