// Memory of the device that is the server's own: second executions read copies and write their
// results there, and nothing of the program's. It has addresses of its own: a replay takes none of
// it, and what the device places by itself, as variables of modules, has to lie where it lay.
#ifndef PYFT_SERVER_DMR_SHADOW_H_
#define PYFT_SERVER_DMR_SHADOW_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include "backend/backend.h"

namespace pyft::server::dmr {

class ShadowMemory : public std::enable_shared_from_this<ShadowMemory> {
 public:
  static constexpr uint64_t kAlign = 256;

  // Given back when the last owner has gone, in any thread.
  class Piece {
   public:
    Piece(std::shared_ptr<ShadowMemory> memory, uint64_t address, uint64_t bytes)
        : memory_(std::move(memory)), address_(address), bytes_(bytes) {}
    Piece(const Piece&) = delete;
    ~Piece() { memory_->give(address_, bytes_); }
    uint64_t address() const { return address_; }
    uint64_t bytes() const { return bytes_; }

   private:
    const std::shared_ptr<ShadowMemory> memory_;
    const uint64_t address_, bytes_;
  };

  // At most so many bytes of the device, in whole granules, taken as they are needed, and kept.
  ShadowMemory(const backend::Table& api, uint64_t most, int device = 0);

  // The dispatch thread. nullptr: there is no room.
  std::shared_ptr<const Piece> take(uint64_t bytes);
  uint64_t in_use();

 private:
  // The mutex is held.
  bool grow(uint64_t bytes);
  bool map(uint64_t address, uint64_t bytes);
  void put_back(uint64_t address, uint64_t bytes);
  void give(uint64_t address, uint64_t bytes);

  const backend::Table& api_;
  const uint64_t most_;
  const int device_;
  std::mutex mutex_;
  CUdeviceptr begin_ = 0;              // of the addresses; 0: not reserved yet
  std::map<uint64_t, uint64_t> free_;  // bytes by address; no two touch
  uint64_t taken_ = 0, used_ = 0;      // bytes from `begin_`; of them those of pieces
};

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_SHADOW_H_
