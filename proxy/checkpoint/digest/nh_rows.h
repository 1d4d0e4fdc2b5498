// NH over whole rows of a tile (nh.h).
#ifndef PYFT_CHECKPOINT_DIGEST_NH_ROWS_H_
#define PYFT_CHECKPOINT_DIGEST_NH_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "checkpoint/digest/kernel.h"

namespace pyft::checkpoint {

// Sums of a tile's columns: each unit has two products, which are added up in the end.
struct NhSums {
  alignas(64) uint64_t pass[kPasses][2 * kColumns] = {};
};

// One unit in column `column`; `key` is that of its row.
void add_nh_unit(const Unit& data, unsigned column, const Unit* key, NhSums* sums);

// `rows` whole rows; `key` is that of the first one.
void add_nh_rows(const std::byte* data, unsigned rows, const Unit* key, NhSums* sums);
void add_nh_rows_portable(const std::byte* data, unsigned rows, const Unit* key, NhSums* sums);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_DIGEST_NH_ROWS_H_
