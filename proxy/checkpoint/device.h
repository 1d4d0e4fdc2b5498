// The device, as snapshots and restores see it. The server makes one of its backend and session
// (server/recovery/session_device.h), tests one of host memory. Codes are CUresult values. Dispatch
// thread, unless it says otherwise.
#ifndef PYFT_CHECKPOINT_DEVICE_H_
#define PYFT_CHECKPOINT_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/memory_range.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

inline constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY
inline constexpr int kNotOnDevice = -1;

// Contents of its memory, while it stands still. What is read, or was written, is what the device
// has when a call returns 0. A restore names variables of modules by where they lay.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual int read(const NextRange& next, const TakePiece& take) = 0;
  virtual int write(const NextContent& next) = 0;
  // As read(), and the device hashes what it hands over. kNotOnDevice: not now; nothing is read.
  virtual int read_hashed(const NextRange&, const TakePiece&, const TakeDigest&) {
    return kNotOnDevice;
  }
  // Asked before a restore writes: so many threads may be in write() at a time, or in view() where
  // the server looks. All but the dispatch thread call enter() first.
  virtual unsigned threads() { return 1; }
  virtual void enter() {}
  // Whether this process can look at the memory itself; then where. nullptr: nothing is mapped.
  virtual bool views() const { return false; }
  virtual const std::byte* view(uint64_t, uint64_t) { return nullptr; }
  // Whether the device hashes ranges itself, with the digests of kind kNh, and nothing is copied.
  // kNotOnDevice: not now, nor later, and the caller does it.
  virtual bool hashes() const { return false; }
  virtual int digests(std::span<const MemoryRange>, ring::Digest*) { return kNotOnDevice; }
  // True: all zeros, and looking at it would cost pages.
  virtual bool untouched(uint64_t, uint64_t) { return false; }
};

// What it does, and what there is of it.
class DeviceState {
 public:
  virtual ~DeviceState() = default;
  // 0: all streams have come to their ends; 600: not yet; else the device's error.
  virtual int idle() = 0;
  // Executes a piece of its work in this thread; false: nothing is ready, or it works by itself.
  virtual bool work() { return false; }
  // Changes when a piece of its work is finished; 0 where nothing can tell.
  virtual uint64_t progress() { return 0; }
  // Whether something of its work may wait for another rank or for the program.
  virtual bool waits() { return true; }
  // Whether a stream captures a graph: nothing may be asked of the device then.
  virtual bool capturing() = 0;
  // Memory that the program has mapped and may access, or might once. Appends.
  virtual void mapped(std::vector<MemoryRange>* ranges) = 0;
  // What the program may use again and a snapshot would lack, as a sentence; empty: nothing.
  virtual std::string out_of_reach() { return {}; }
  // Memory of the device's own that kernels change: variables of modules, which are appended, and
  // the heap of kernels, empty if there is none.
  virtual void variables(std::vector<ring::ManifestPlace>* places) = 0;
  virtual MemoryRange kernel_heap() { return {}; }
  // 0, or 600 while it works, else its error.
  virtual int status() { return 0; }
  // A snapshot has what is live: what the server keeps on the device beside it may go. It begins
  // behind this entry.
  virtual void saved(uint64_t) {}
  // It reads this memory of the process from now on, by itself. False: it cannot.
  virtual bool reads_host(std::byte*, uint64_t) { return true; }
};

// Reads memory beside the device's work, torn or not. Any thread.
class BackgroundReads {
 public:
  virtual ~BackgroundReads() = default;
  // Whether this process can look at memory that may be unmapped meanwhile: then peek() reads it,
  // false where nothing is mapped any more. Else read_beside() reads what stays mapped through the
  // device, in two threads at most, each of which has called enter() first.
  virtual bool peeks() const { return false; }
  virtual bool peek(uint64_t, std::byte*, uint64_t) { return false; }
  virtual int read_beside(const NextRange&, const TakePiece&) { return kNotOnDevice; }
  // As DeviceMemory::read_hashed. The digest is of what is handed over, whatever changes meanwhile.
  virtual int read_beside_hashed(const NextRange&, const TakePiece&, const TakeDigest&) {
    return kNotOnDevice;
  }
  // At a cut: whether it can be done until the next one.
  virtual bool ready() { return true; }
  virtual void enter() {}
};

// Device memory of the server's own, beside the program's.
class OwnMemory {
 public:
  virtual ~OwnMemory() = default;
  virtual uint64_t allocate(uint64_t bytes) = 0;  // 0: there is none
  virtual void release(uint64_t address) = 0;
  // Copies within the device, beside the program's streams; the second returns when all such
  // copies are made, with 0 or an error.
  virtual int duplicate(uint64_t to, uint64_t from, uint64_t bytes) = 0;
  virtual int duplicated() = 0;
};

// What the module of a handle is loaded from.
struct ModuleImage {
  uint64_t handle = 0;
  std::span<const std::byte> image;
};

// Where memory of the device's own comes to lie when objects are made again.
class Placement {
 public:
  virtual ~Placement() = default;
  // The next module's variables come to lie here; with owner 0 the heap of kernels does. 0 or an
  // error. By default they must come to lie there by themselves.
  virtual int place(const ring::ManifestPlace&) { return 0; }
  // Whether variables may lie elsewhere than before. If so: finds out where they lie now. Empty, or
  // which of them cannot be restored.
  virtual bool relocates() const { return false; }
  virtual std::string relocate(const std::vector<ring::ManifestPlace>&) { return {}; }
  // Before objects are made again: the modules of the committed snapshot, in order, and where their
  // variables lay. How many need not be loaded any more; nothing where none ever are.
  virtual std::optional<size_t> choose_modules(std::span<const ModuleImage>,
                                               std::span<const ring::ManifestPlace>) {
    return std::nullopt;
  }
};

// The parts of one device. They outlive the object that has this.
struct Device {
  DeviceMemory& memory;
  DeviceState& state;
  BackgroundReads* background = nullptr;  // nullptr: whatever is copied is copied at cuts
  OwnMemory* own = nullptr;               // nullptr: there is none
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_DEVICE_H_
