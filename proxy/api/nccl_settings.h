// What a program sets of a communicator's ncclConfig_t, as it crosses the ring and as servers keep
// it. Same rules as wire_types.h. A new field of NCCL's takes the next number; it is the server's
// library that knows which of them it can use.
#ifndef PYFT_API_NCCL_SETTINGS_H_
#define PYFT_API_NCCL_SETTINGS_H_

#include <flexccl.h>  // NCCL's types

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace pyft {

struct NcclSettings {
  int32_t numbers[12];  // in the order of kNcclNumbers; NCCL_CONFIG_UNDEF_INT: not set
  char net_name[64];    // of text with its NUL; empty: not set
  char comm_name[128];
};
static_assert(sizeof(NcclSettings) == 240 && std::is_trivially_copyable_v<NcclSettings>);
// The settings follow arrays in a payload: whether they are there is seen by its size.
static_assert(sizeof(NcclSettings) % sizeof(ncclUniqueId) != 0);

// `blocking` is not here: communicators of servers are made by calls that wait.
struct NcclNumber {
  int ncclConfig_t::* field;
  unsigned since;  // version of NCCL, by which a struct of an older one has padding there
  const char* name;
};
inline constexpr NcclNumber kNcclNumbers[] = {
    {&ncclConfig_t::cgaClusterSize, 21700, "cgaClusterSize"},
    {&ncclConfig_t::minCTAs, 21700, "minCTAs"},
    {&ncclConfig_t::maxCTAs, 21700, "maxCTAs"},
    {&ncclConfig_t::splitShare, 21800, "splitShare"},
    {&ncclConfig_t::trafficClass, 22600, "trafficClass"},
    {&ncclConfig_t::collnetEnable, 22700, "collnetEnable"},
    {&ncclConfig_t::CTAPolicy, 22700, "CTAPolicy"},
    {&ncclConfig_t::shrinkShare, 22700, "shrinkShare"},
    {&ncclConfig_t::nvlsCTAs, 22700, "nvlsCTAs"},
    {&ncclConfig_t::nChannelsPerNetPeer, 22800, "nChannelsPerNetPeer"},
    {&ncclConfig_t::nvlinkCentricSched, 22800, "nvlinkCentricSched"},
};
static_assert(std::size(kNcclNumbers) <= std::size(decltype(NcclSettings::numbers){}));
inline constexpr unsigned kNetNameSince = 21700, kCommNameSince = 22700;
inline constexpr unsigned kNcclConfigMagic = 0xcafebeef;

// Nothing set.
inline ncclConfig_t empty_nccl_config() {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = kNcclConfigMagic;
  config.version = NCCL_VERSION_CODE;
  config.blocking = NCCL_CONFIG_UNDEF_INT;
  for (const NcclNumber& one : kNcclNumbers) config.*one.field = NCCL_CONFIG_UNDEF_INT;
  return config;
}

}  // namespace pyft

#endif  // PYFT_API_NCCL_SETTINGS_H_
