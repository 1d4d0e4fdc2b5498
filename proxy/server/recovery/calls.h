// What captures and restores want of the device and of the handlers. device_memory.h makes it from
// a backend; tests pass functions of their own. Codes are CUresult values.
#ifndef PYFT_SERVER_RECOVERY_CALLS_H_
#define PYFT_SERVER_RECOVERY_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ring/store_layout.h"

namespace pyft::server {

struct MemoryRange {
  uint64_t address = 0, bytes = 0;
  uint64_t end() const { return address + bytes; }
  bool operator==(const MemoryRange&) const = default;
};

// What the module of a handle is loaded from.
struct ModuleImage {
  uint64_t handle = 0;
  std::span<const std::byte> image;
};

constexpr int kNotOnDevice = -1;

// What is to be read next; false: nothing more, however often it is asked. Ahead of what has been
// taken.
using NextRange = std::function<bool(MemoryRange*)>;
// Gets what is read, piece by piece and in order; a piece is of one range, and there until the call
// returns.
using TakePiece = std::function<void(const std::byte* piece, uint64_t bytes)>;

// Of one range.
inline NextRange only(const MemoryRange& range) {
  return [left = range](MemoryRange* next) mutable {
    *next = std::exchange(left, {});
    return next->bytes != 0;
  };
}

// Which of these blocks the device has now with their contents.
using CheckBlocks = std::function<std::vector<bool>(std::span<const ring::ManifestBlock>)>;

struct RecoveryCalls {
  // What is read, or was written, is what the device has when this returns 0.
  std::function<int(const NextRange& next, const TakePiece& take)> read;
  std::function<int(uint64_t address, const std::byte* from, uint64_t bytes)> write;
  // Where this process can look at device memory itself; nullptr where it cannot, or nothing is
  // mapped there. May be empty.
  std::function<const std::byte*(uint64_t address, uint64_t bytes)> view;
  // The device hashes these ranges itself, with the digests of kind kNh, and nothing is copied.
  // kNotOnDevice: nor will it later, and who asked does it himself. May be empty.
  std::function<int(std::span<const MemoryRange>, ring::Digest*)> digests;
  // True: all zeros, and looking at it would cost pages. May be empty.
  std::function<bool(uint64_t address, uint64_t bytes)> untouched;
  // Copies device memory beside the device's work, torn or not; false where nothing is mapped any
  // more. Any thread. May be empty.
  std::function<bool(uint64_t address, std::byte* to, uint64_t bytes)> peek;
  // The same for memory that the process cannot look at, which must stay mapped meanwhile: reads it
  // through the device, in two threads at most, each of which has called `enter` first. Empty, with
  // `peek`: whatever is copied is copied at cuts.
  std::function<int(const NextRange& next, const TakePiece& take)> read_beside;
  // At a cut: whether it can be done. Not empty where `read_beside` is not.
  std::function<bool()> ready_beside;
  // What a thread of the server's does before it works on the device. May be empty.
  std::function<void()> enter;
  // Device memory of the server's own, 0: there is none. May be empty, as may be the next three.
  std::function<uint64_t(uint64_t bytes)> allocate;
  std::function<void(uint64_t address)> release;
  // Copies within the device, beside the program's streams; the second returns when all such
  // copies are made, with 0 or an error.
  std::function<int(uint64_t to, uint64_t from, uint64_t bytes)> duplicate;
  std::function<int()> duplicated;
  // 0: all streams have come to their ends; 600: not yet; else the device's error.
  std::function<int()> idle;
  // Whether a stream captures a graph: nothing may be asked of the device then.
  std::function<bool()> capturing;
  // Memory that the program has mapped and may access.
  std::function<void(std::vector<MemoryRange>*)> mapped;
  // Memory of the device's own that kernels change: variables of modules and the heap of kernels.
  std::function<void(std::vector<ring::ManifestPlace>*)> hidden;
  // Work areas of libraries: their contents matter to nobody between two calls.
  std::function<void(std::vector<MemoryRange>*)> scratch;
  // All streams have come to their ends at this cut, which may become the recovery point. May be
  // empty, as may be the next.
  std::function<void(uint64_t cut)> at_cut;
  // The other ranks have all that only this process can give them of what came before this cut,
  // which becomes the recovery point no sooner. Any thread. May be empty.
  std::function<bool(uint64_t cut)> delivered;
  // What has to be kept from one captured cut to the next fills its room. May be empty.
  std::function<bool()> crowded;
  // Where all ranks have to hold the same cut: no more than so many lie between two captures of
  // this rank; and the least that another one has said, 0: nobody has.
  std::function<void(uint64_t)> tell_pace;
  std::function<uint64_t()> pace_of_others;
  // It is the recovery point. Any thread.
  std::function<void(uint64_t cut, uint64_t seq)> published;
  // The table of the cut of this step, its entry is `seq`, lies here in the store; 0: the cut is
  // passed over. May be empty.
  std::function<void(uint64_t step, uint64_t offset, uint64_t seq)> captured;
  // It is whole as well, and other ranks need nothing from before it. May be empty, as may be the
  // next two.
  std::function<void(uint64_t step, uint64_t seq)> held;
  // It must not wait any longer: the agent settles or drops it.
  std::function<void(uint64_t step)> withdraw;
  // The content of a block that another rank's store keeps, of the right digest; else nullptr, and
  // why.
  std::function<const std::byte*(const ring::ManifestBlock& block, std::string* problem)> elsewhere;
  // In a restore, before anything is written: copies what other ranks' GPUs have as well, and marks
  // what `check` has found right; what is marked already is not wanted. Empty, or why the restore
  // cannot go on. May be empty.
  std::function<std::string(std::span<const ring::ManifestBlock>, const CheckBlocks& check,
                            std::vector<bool>* there)>
      from_peers;
  // Where the device has put variables of modules, against where they were at the recovery point:
  // empty, or which of them cannot be restored. From then on `read` and `write` of a restore take
  // the addresses of the recovery point. May be empty: then they must lie where they were.
  std::function<std::string(const std::vector<ring::ManifestPlace>& before)> relocate;
  // The next module's variables come to lie here; with owner 0 the heap of kernels does. 0 or an
  // error. May be empty: then they must come to lie there by themselves.
  std::function<int(const ring::ManifestPlace&)> place;
  // Before objects are made again: the modules of the recovery point, in order, and where their
  // variables lay. How many need not be loaded any more. May be empty.
  std::function<size_t(std::span<const ModuleImage>, std::span<const ring::ManifestPlace>)>
      choose_modules;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_CALLS_H_
