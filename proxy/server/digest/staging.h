// Pieces of device memory on their way to the host. The device copies them aside first, and hashes
// that copy: so what arrives has the digest that is told with it, whatever the program does with
// its own memory meanwhile, and no processor of the host has to look at it.
//
// All of it is asked of the device in one stream, piece by piece: begin, copy and send; then, when
// the device has come so far, sums of its parts in the same order. One thread at a time.
#ifndef PYFT_SERVER_DIGEST_STAGING_H_
#define PYFT_SERVER_DIGEST_STAGING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "checkpoint/digest/nh.h"
#include "checkpoint/memory_range.h"
#include "server/digest/mapped_memory.h"

namespace pyft::server {

class DeviceDigests;

class Staging {
 public:
  static constexpr unsigned kPieces = 4;
  static constexpr uint64_t kPieceBytes = uint64_t{2} << 20;
  static constexpr unsigned kTiles = 512;  // of a piece; a part has one of its own at least

  // nullptr, and why. `digests`, which has the kernel, outlives the object. Where memory is
  // allocated on the device shows in where modules come to lie: made before those of the program.
  static std::unique_ptr<Staging> make(const backend::Table& table, const DeviceDigests& digests,
                                       std::string* why);
  ~Staging();
  Staging(const Staging&) = delete;

  void begin(unsigned piece);
  // How much of a range of so many bytes the piece can take from `at` on: all of it, or whole
  // tiles; 0: nothing.
  uint64_t room(unsigned piece, uint64_t at, uint64_t bytes) const;
  // Codes of the driver.
  int copy(unsigned piece, uint64_t at, const checkpoint::MemoryRange& part, CUstream stream);
  int send(unsigned piece, std::byte* to, uint64_t bytes, CUstream stream);
  // Of the piece's next part, of a range whose sum it is added to.
  void add_part(unsigned piece, uint64_t bytes, checkpoint::NhSum* sum);
  const checkpoint::NhKey& key() const;

 private:
  struct Piece {
    CUdeviceptr memory = 0;
    checkpoint::Slice* slices = nullptr;
    const checkpoint::Number* sums = nullptr;
    uint64_t slices_there = 0, sums_there = 0;  // addresses for the device
    unsigned hashed = 0, taken = 0;             // tiles
  };
  Staging(const backend::Table& table, const DeviceDigests& digests)
      : table_(table), digests_(digests), mapped_(table) {}
  std::string prepare();

  const backend::Table& table_;
  const DeviceDigests& digests_;
  MappedMemory mapped_;
  CUdeviceptr memory_ = 0;
  std::array<Piece, kPieces> pieces_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_DIGEST_STAGING_H_
