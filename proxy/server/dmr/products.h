// What a call of cuBLAS reads and writes, and all else that its result depends on: enough to know
// when two calls have to give the same bits.
#ifndef PYFT_SERVER_DMR_PRODUCTS_H_
#define PYFT_SERVER_DMR_PRODUCTS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "server/handlers/handlers.h"

namespace pyft::server::dmr {

// `slices` matrices of `columns` pieces of `bytes`, without what lies between.
struct Range {
  uint64_t address = 0, bytes = 0, columns = 0, pitch = 0, slices = 1, stride = 0;
  // From the first byte to the last; 0: more than memory has.
  uint64_t extent() const;
};

struct Product {
  const char* name = "";
  uint64_t stream = 0;               // handle
  std::vector<std::byte> arguments;  // all but where things lie
  std::array<Range, 4> inputs;
  size_t input_count = 0;
  Range output;
  int64_t m = 0, n = 0, k = 0, batch = 1;

  void reads(const Range& range) { inputs[input_count++] = range; }
  // Modulo 2^64: the client may have written any sizes.
  uint64_t flops() const {
    const auto of = [](int64_t factor) { return static_cast<uint64_t>(factor); };
    return 2 * of(batch) * of(m) * of(n) * of(k);
  }
};

enum class Reading {
  kOther,    // no product
  kProduct,  // `product` tells all
  kOpaque,   // a product that depends on more than is known here
};
// The numbers are as the client has written them.
Reading read_product(const EntryHeader& header, Body body, Product* product);

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_PRODUCTS_H_
