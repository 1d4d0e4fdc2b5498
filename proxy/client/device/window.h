// Places device memory in the device's address window and pinned memory in the pinned window.
//
// Large requests get whole granules (2 MiB); small ones (< 1 MiB) are carved, 512 B aligned, from
// slabs of one granule. The window only decides addresses: the server that maps a granule on the
// device is told by Region. Not thread-safe: the owner holds a mutex.
#ifndef PYFT_CLIENT_DEVICE_WINDOW_H_
#define PYFT_CLIENT_DEVICE_WINDOW_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace pyft::client {

// Best-fit ranges of an address interval.
class RangePool {
 public:
  RangePool(uint64_t base, uint64_t bytes);
  uint64_t take(uint64_t bytes);  // 0: nothing fits
  bool take_at(uint64_t address, uint64_t bytes);
  void give(uint64_t address, uint64_t bytes);

 private:
  void insert(uint64_t address, uint64_t bytes);
  void erase(std::map<uint64_t, uint64_t>::iterator range);
  std::map<uint64_t, uint64_t> by_address_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (bytes, address)
};

struct Region {  // whole granules to map or unmap; bytes 0: nothing to do
  uint64_t address = 0, bytes = 0;
};

class Window {
 public:
  Window(uint64_t base, uint64_t bytes, uint64_t granule, uint64_t small_limit, uint64_t alignment);

  // Address for `bytes`, or 0. A region in *map must be mapped first; if that fails: cancel().
  uint64_t allocate(uint64_t bytes, Region* map);
  void cancel(uint64_t address);
  // False: no allocation starts there. A region in *unmap is no longer used.
  bool release(uint64_t address, Region* unmap, uint64_t* bytes);
  // Addresses without memory, `bytes` being whole granules and `alignment` a power of two or 0;
  // at `wanted` if that is free. 0: nothing fits.
  uint64_t reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted);
  void unreserve(uint64_t address, uint64_t bytes) { granules_.give(address, bytes); }
  // Start and size of the allocation that contains `address`. False: none.
  bool find(uint64_t address, uint64_t* start, uint64_t* bytes) const;

 private:
  struct Block {
    uint64_t bytes, reserved, slab;  // slab 0: own granules
  };
  struct Slab {
    RangePool free;
    uint32_t users = 0;
  };
  uint64_t carve(uint64_t bytes, uint64_t rounded);

  uint64_t granule_, small_limit_, alignment_;
  RangePool granules_;
  std::map<uint64_t, Slab> slabs_;
  std::map<uint64_t, Block> blocks_;
};

}  // namespace pyft::client

#endif  // PYFT_CLIENT_DEVICE_WINDOW_H_
