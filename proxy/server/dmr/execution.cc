#include "server/dmr/execution.h"

namespace pyft::server::dmr {

Digest digest_of(const Range& range, uint64_t address, checkpoint::DigestKey key) {
  const auto* from = reinterpret_cast<const std::byte*>(address);
  const bool dense = range.pitch == range.bytes || range.columns == 1;
  if (dense && range.slices == 1) return checkpoint::digest(from, range.bytes * range.columns, key);
  checkpoint::Hasher hasher(key);
  for (uint64_t slice = 0; slice < range.slices; ++slice) {
    const std::byte* const begin = from + slice * range.stride;
    if (dense) {
      hasher.add(begin, range.bytes * range.columns);
      continue;
    }
    for (uint64_t column = 0; column < range.columns; ++column)
      hasher.add(begin + column * range.pitch, range.bytes);
  }
  return hasher.digest();
}

Digest digest_of_inputs(const Product& product, const Places& at, checkpoint::DigestKey key) {
  std::array<Digest, 5> parts{};
  parts[0] = checkpoint::digest(product.arguments.data(), product.arguments.size(), key);
  for (size_t i = 0; i < product.input_count; ++i)
    parts[i + 1] = digest_of(product.inputs[i], at.inputs[i], key);
  return checkpoint::digest(parts.data(), (product.input_count + 1) * sizeof parts[0], key);
}

}  // namespace pyft::server::dmr
