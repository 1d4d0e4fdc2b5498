#include "base/hash.h"

// Declared here since machines have libxxhash's run-time library but not always its headers. The
// interface of XXH3 is stable from version 0.8.0 on.
extern "C" {
struct XXH128Hash {
  std::uint64_t low, high;
};
XXH128Hash XXH3_128bits_withSeed(const void* data, std::size_t bytes, std::uint64_t seed);
// The same by the widest vectors that the processor has. Libraries that are built for one kind of
// processor lack it.
[[gnu::weak]] XXH128Hash XXH3_128bits_withSeed_dispatch(const void* data, std::size_t bytes,
                                                        std::uint64_t seed);
}

namespace flexccl {

Hash content_hash(std::span<const std::byte> content, const Hash& before) {
  static const auto hash =
      XXH3_128bits_withSeed_dispatch ? XXH3_128bits_withSeed_dispatch : XXH3_128bits_withSeed;
  const XXH128Hash own = hash(content.data(), content.size(), 0);
  const Hash both[] = {before, {own.low, own.high}};
  const XXH128Hash found = hash(both, sizeof both, 0);
  return {found.low, found.high};
}

}  // namespace flexccl
