#include "server/recovery/pinned_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <optional>

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

std::unique_ptr<PinnedRing> PinnedRing::make(const backend::Table& table,
                                             std::shared_ptr<Staging> staging, std::string* why) {
  why->clear();
  if (!is_complete(table)) {
    *why = "the driver lacks a function";
    return nullptr;
  }
  std::unique_ptr<PinnedRing> made(new PinnedRing(table, std::move(staging)));
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
  for (unsigned i = 0; i < kPieces; ++i) {
    pieces_[i].number = i;
    pieces_[i].memory = static_cast<std::byte*>(memory_) + i * kPieceBytes;
    if (const int code = table_.cuEventCreate(&pieces_[i].there, CU_EVENT_DISABLE_TIMING))
      return refused("cuEventCreate", code);
  }
  return {};
}

// Memory that the device may still copy to or hash stays.
PinnedRing::~PinnedRing() {
  if (rests()) {
    static auto& kept = *new std::vector<std::shared_ptr<Staging>>;
    kept.push_back(std::move(staging_));
    return;
  }
  for (const Piece& piece : pieces_)
    if (piece.there) table_.cuEventDestroy_v2(piece.there);
  if (stream_) table_.cuStreamDestroy_v2(stream_);
  if (locked_) table_.cuMemHostUnregister(memory_);
  if (memory_) munmap(memory_, kBytes);
}

bool PinnedRing::stop_hashing() {
  if (rests()) return false;
  staging_.reset();
  return true;
}

int PinnedRing::rests() {
  if (!under_way_) return 0;
  const int code = table_.cuStreamQuery(stream_);
  under_way_ = code != 0;
  return code;
}

// The device has been given all of the piece to copy.
int PinnedRing::send(const Piece& piece) {
  return table_.cuEventRecord(piece.there, stream_);
}

int PinnedRing::wait(const Piece& piece, uint64_t patience_ns) const {
  return wait_for([&] { return static_cast<int>(table_.cuEventQuery(piece.there)); },
                  ring::now_ns() + patience_ns);
}

int PinnedRing::read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                     uint64_t patience_ns) {
  if (const int code = rests()) return code;
  under_way_ = true;
  return end(pass(next, take, nullptr, patience_ns), patience_ns);
}

// A device that does not hash what it copies any more may still copy.
int PinnedRing::read_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                            const checkpoint::TakeDigest& hashed, uint64_t patience_ns) {
  if (!staging_ || !hashes_) return checkpoint::kNotOnDevice;
  if (const int code = rests()) return code;
  under_way_ = true;
  const int code = end(pass(next, take, &hashed, patience_ns), patience_ns);
  if (code && code != kLate) hashes_ = false;
  return code;
}

int PinnedRing::pass(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                     const checkpoint::TakeDigest* hashed, uint64_t patience_ns) {
  checkpoint::MemoryRange left;
  std::optional<checkpoint::NhSum> sum;
  uint64_t bytes = 0;  // of the range that is taken
  bool more = true;
  for (uint64_t sent = 0, taken = 0; more || taken < sent;) {
    if (more && sent < taken + kPieces) {
      Piece& piece = pieces_[sent % kPieces];
      if (const int code = fill(next, hashed != nullptr, &left, &piece)) return code;
      more = !piece.parts.empty();
      if (more) ++sent;
      continue;
    }
    const Piece& piece = pieces_[taken++ % kPieces];
    if (const int code = wait(piece, patience_ns)) return code;
    checkpoint::pass_turn();
    for (const Part& part : piece.parts) {
      take(piece.memory + part.at, part.bytes);
      if (!hashed) continue;
      if (!sum) sum.emplace(staging_->key());
      staging_->add_part(piece.number, part.bytes, &*sum);
      bytes += part.bytes;
      if (!part.last) continue;
      (*hashed)(sum->digest(bytes));
      sum.reset();
      bytes = 0;
    }
  }
  return 0;
}

// `left`: of the range that does not fit the piece before.
int PinnedRing::fill(const checkpoint::NextRange& next, bool hashes, checkpoint::MemoryRange* left,
                     Piece* piece) {
  piece->parts.clear();
  if (hashes) staging_->begin(piece->number);
  for (uint64_t at = 0; at < kPieceBytes && (left->bytes || next(left));) {
    const uint64_t bytes = hashes ? staging_->room(piece->number, at, left->bytes)
                                  : std::min(kPieceBytes - at, left->bytes);
    if (!bytes && left->bytes) break;
    if (const int code = add({left->address, bytes}, at, hashes, *piece)) return code;
    piece->parts.push_back({at, bytes, bytes == left->bytes});
    *left = {left->address + bytes, left->bytes - bytes};
    at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (piece->parts.empty()) return 0;
  const int code =
      hashes ? staging_->send(piece->number, piece->memory, end_of(*piece), stream_) : 0;
  return code ? code : send(*piece);
}

int PinnedRing::add(const checkpoint::MemoryRange& part, uint64_t at, bool hashes,
                    const Piece& piece) {
  if (hashes) return staging_->copy(piece.number, at, part, stream_);
  return table_.cuMemcpyDtoHAsync_v2(piece.memory + at, part.address, part.bytes, stream_);
}

uint64_t PinnedRing::end_of(const Piece& piece) {
  return piece.parts.back().at + piece.parts.back().bytes;
}

int PinnedRing::write(const checkpoint::NextContent& next, uint64_t patience_ns) {
  if (const int code = rests()) return code;
  under_way_ = true;
  return end(pass_down(next, patience_ns), patience_ns);
}

int PinnedRing::pass_down(const checkpoint::NextContent& next, uint64_t patience_ns) {
  checkpoint::Content left;
  for (uint64_t sent = 0;; ++sent) {
    const Piece& piece = pieces_[sent % kPieces];
    if (const int code = sent < kPieces ? 0 : wait(piece, patience_ns)) return code;
    uint64_t at = 0;
    while (at < kPieceBytes && (left.bytes || next(&left))) {
      const uint64_t bytes = std::min(kPieceBytes - at, left.bytes);
      checkpoint::pass_copy(piece.memory + at, left.from, bytes);
      if (const int code =
              table_.cuMemcpyHtoDAsync_v2(left.address, piece.memory + at, bytes, stream_))
        return code;
      left = {left.address + bytes, left.from + bytes, left.bytes - bytes};
      at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (!at) return 0;
    if (const int code = send(piece)) return code;
  }
}

// What travels is waited for, also behind an error that concerns one range only.
int PinnedRing::end(int code, uint64_t patience_ns) {
  const uint64_t until = ring::now_ns() + (code == kLate ? 0 : patience_ns);
  const int left = wait_for([this] { return rests(); }, until);
  return code ? code : left;
}

}  // namespace pyft::server
