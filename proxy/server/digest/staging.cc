#include "server/digest/staging.h"

#include <algorithm>

#include "server/digest/device_digests.h"

namespace pyft::server {

namespace {

constexpr uint64_t kSliceBytes = Staging::kTiles * sizeof(checkpoint::Slice);
constexpr uint64_t kSumBytes = Staging::kTiles * sizeof(checkpoint::Number);

unsigned tiles_of(uint64_t bytes) {
  return static_cast<unsigned>((bytes + checkpoint::kTileBytes - 1) / checkpoint::kTileBytes);
}

}  // namespace

std::unique_ptr<Staging> Staging::make(const backend::Table& table, const DeviceDigests& digests,
                                       std::string* why) {
  std::unique_ptr<Staging> made(new Staging(table, digests));
  *why = made->prepare();
  return why->empty() ? std::move(made) : nullptr;
}

std::string Staging::prepare() {
  if (!table_.cuMemAlloc_v2 || !table_.cuMemFree_v2 || !table_.cuMemcpyAsync)
    return "the driver lacks a function";
  if (std::string problem = mapped_.make(kPieces * (kSliceBytes + kSumBytes)); !problem.empty())
    return problem;
  if (const int code = table_.cuMemAlloc_v2(&memory_, kPieces * kPieceBytes))
    return "[cuMemAlloc_v2] fails with code [" + std::to_string(code) + "]";
  for (unsigned i = 0; i < kPieces; ++i) {
    Piece& piece = pieces_[i];
    const uint64_t at = i * (kSliceBytes + kSumBytes);
    piece.memory = memory_ + i * kPieceBytes;
    piece.slices = reinterpret_cast<checkpoint::Slice*>(mapped_.here() + at);
    piece.sums = reinterpret_cast<const checkpoint::Number*>(mapped_.here() + at + kSliceBytes);
    piece.slices_there = mapped_.there() + at;
    piece.sums_there = mapped_.there() + at + kSliceBytes;
  }
  return {};
}

Staging::~Staging() {
  if (memory_) table_.cuMemFree_v2(memory_);
}

const checkpoint::NhKey& Staging::key() const {
  return digests_.key();
}

void Staging::begin(unsigned piece) {
  pieces_[piece].hashed = pieces_[piece].taken = 0;
}

uint64_t Staging::room(unsigned piece, uint64_t at, uint64_t bytes) const {
  const uint64_t tiles = kTiles - pieces_[piece].hashed;
  const uint64_t most =
      std::min(kPieceBytes - std::min(at, kPieceBytes), tiles * checkpoint::kTileBytes);
  return bytes <= most ? bytes : most / checkpoint::kTileBytes * checkpoint::kTileBytes;
}

int Staging::copy(unsigned number, uint64_t at, const checkpoint::MemoryRange& part,
                  CUstream stream) {
  Piece& piece = pieces_[number];
  const CUdeviceptr to = piece.memory + at;
  if (const int code = table_.cuMemcpyAsync(to, part.address, part.bytes, stream)) return code;
  for (uint64_t done = 0; done < part.bytes; done += checkpoint::kTileBytes)
    piece.slices[piece.hashed++] = {to + done,
                                    std::min<uint64_t>(checkpoint::kTileBytes, part.bytes - done)};
  return 0;
}

int Staging::send(unsigned number, std::byte* to, uint64_t bytes, CUstream stream) {
  const Piece& piece = pieces_[number];
  if (const int code = digests_.launch(piece.slices_there, piece.sums_there, piece.hashed, stream))
    return code;
  return table_.cuMemcpyDtoHAsync_v2(to, piece.memory, bytes, stream);
}

void Staging::add_part(unsigned number, uint64_t bytes, checkpoint::NhSum* sum) {
  Piece& piece = pieces_[number];
  for (unsigned left = tiles_of(bytes); left > 0; --left) sum->add(piece.sums[piece.taken++], 1);
}

}  // namespace pyft::server
