#include "server/recovery/pinned_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/bytes_passed.h"
#include "server/recovery/wait_for.h"

namespace pyft::server {

namespace {

constexpr uint64_t kBytes = PinnedRing::kPieces * PinnedRing::kPieceBytes;
constexpr uint64_t kAlignment = 256;  // of ranges in a piece

std::string refused(const char* call, int code) {
  return std::string("[") + call + "] fails with code [" + std::to_string(code) + "]";
}

bool is_complete(const backend::Table& table) {
  return table.cuMemHostRegister_v2 && table.cuMemHostUnregister && table.cuMemcpyDtoHAsync_v2 &&
         table.cuMemcpyHtoDAsync_v2 && table.cuStreamCreateWithPriority && table.cuStreamQuery &&
         table.cuStreamDestroy_v2 && table.cuEventCreate && table.cuEventRecord &&
         table.cuEventQuery && table.cuEventDestroy_v2;
}

}  // namespace

std::unique_ptr<PinnedRing> PinnedRing::make(const backend::Table& table, std::string* why) {
  why->clear();
  if (!is_complete(table)) {
    *why = "the driver lacks a function";
    return nullptr;
  }
  std::unique_ptr<PinnedRing> made(new PinnedRing(table));
  *why = made->prepare();
  return why->empty() ? std::move(made) : nullptr;
}

std::string PinnedRing::prepare() {
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return "there is no memory";
  memory_ = memory;
  if (const int code = table_.cuMemHostRegister_v2(memory_, kBytes, CU_MEMHOSTREGISTER_PORTABLE))
    return refused("cuMemHostRegister_v2", code);
  locked_ = true;
  if (const int code = table_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0))
    return refused("cuStreamCreateWithPriority", code);
  for (uint64_t i = 0; i < kPieces; ++i) {
    pieces_[i].memory = static_cast<std::byte*>(memory_) + i * kPieceBytes;
    if (const int code = table_.cuEventCreate(&pieces_[i].there, CU_EVENT_DISABLE_TIMING))
      return refused("cuEventCreate", code);
  }
  return {};
}

// Memory to which the device may still copy stays.
PinnedRing::~PinnedRing() {
  if (rests()) return;
  for (const Piece& piece : pieces_)
    if (piece.there) table_.cuEventDestroy_v2(piece.there);
  if (stream_) table_.cuStreamDestroy_v2(stream_);
  if (locked_) table_.cuMemHostUnregister(memory_);
  if (memory_) munmap(memory_, kBytes);
}

int PinnedRing::rests() {
  if (!under_way_) return 0;
  const int code = table_.cuStreamQuery(stream_);
  under_way_ = code != 0;
  return code;
}

// After the call that has given the device a piece to copy.
int PinnedRing::send(const Piece& piece, int copied) {
  return copied ? copied : table_.cuEventRecord(piece.there, stream_);
}

int PinnedRing::wait(const Piece& piece, uint64_t patience_ns) const {
  return wait_for([&] { return static_cast<int>(table_.cuEventQuery(piece.there)); },
                  ring::now_ns() + patience_ns);
}

int PinnedRing::read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                     uint64_t patience_ns) {
  if (const int code = rests()) return code;
  under_way_ = true;
  return end(pass(next, take, patience_ns), patience_ns);
}

int PinnedRing::pass(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                     uint64_t patience_ns) {
  checkpoint::MemoryRange left;
  bool more = true;
  for (uint64_t sent = 0, taken = 0; more || taken < sent;) {
    if (more && sent < taken + kPieces) {
      Piece& piece = pieces_[sent % kPieces];
      if (const int code = fill(next, &left, &piece)) return code;
      more = !piece.parts.empty();
      if (more) ++sent;
      continue;
    }
    const Piece& piece = pieces_[taken++ % kPieces];
    if (const int code = wait(piece, patience_ns)) return code;
    checkpoint::pass_turn();
    for (const Part& part : piece.parts) take(piece.memory + part.at, part.bytes);
  }
  return 0;
}

// `left`: of the range that does not fit the piece before.
int PinnedRing::fill(const checkpoint::NextRange& next, checkpoint::MemoryRange* left,
                     Piece* piece) {
  piece->parts.clear();
  for (uint64_t at = 0; at < kPieceBytes && (left->bytes || next(left));) {
    const uint64_t bytes = std::min(kPieceBytes - at, left->bytes);
    if (const int code =
            table_.cuMemcpyDtoHAsync_v2(piece->memory + at, left->address, bytes, stream_))
      return code;
    piece->parts.push_back({at, bytes});
    *left = {left->address + bytes, left->bytes - bytes};
    at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return piece->parts.empty() ? 0 : send(*piece, 0);
}

int PinnedRing::write(uint64_t address, const std::byte* from, uint64_t bytes,
                      uint64_t patience_ns) {
  if (const int code = rests()) return code;
  under_way_ = true;
  int code = 0;
  for (uint64_t at = 0, sent = 0; !code && at < bytes; at += kPieceBytes, ++sent) {
    const Piece& piece = pieces_[sent % kPieces];
    const uint64_t part = std::min(kPieceBytes, bytes - at);
    if (sent >= kPieces) code = wait(piece, patience_ns);
    if (code) break;
    std::memcpy(piece.memory, from + at, part);
    checkpoint::pass_bytes(part);
    code = send(piece, table_.cuMemcpyHtoDAsync_v2(address + at, piece.memory, part, stream_));
  }
  return end(code, patience_ns);
}

// What travels is waited for, also behind an error that concerns one range only.
int PinnedRing::end(int code, uint64_t patience_ns) {
  const uint64_t until = ring::now_ns() + (code == kLate ? 0 : patience_ns);
  const int left = wait_for([this] { return rests(); }, until);
  return code ? code : left;
}

}  // namespace pyft::server
