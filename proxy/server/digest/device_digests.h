// The digest of nh.h, computed by the device for any number of blocks in a few launches.
//
// The kernel's table of work and its results lie in host memory that the device sees, its keys are
// an argument: the module has no variables. It runs in a stream of its own that does not
// synchronise with the program's. Dispatch thread only, but for launch().
#ifndef PYFT_SERVER_DIGEST_DEVICE_DIGESTS_H_
#define PYFT_SERVER_DIGEST_DEVICE_DIGESTS_H_

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/digest/nh.h"
#include "checkpoint/memory_range.h"
#include "server/digest/images.h"
#include "server/digest/mapped_memory.h"
#include "server/digest/staging.h"

namespace pyft::server {

class DeviceDigests {
 public:
  static constexpr unsigned kStagings = 2;  // threads that copy at once, 16 MiB of the device's

  // nullptr, and why. `table` must outlive this. The module is loaded and memory is allocated here:
  // in each server before the program's modules, which so come to lie where they lay in the server
  // before. Known bytes are hashed as well: a device that computes something else is of no use.
  static std::unique_ptr<DeviceDigests> make(const backend::Table& table, int ordinal,
                                             uint64_t seed, std::span<const KernelImage> images,
                                             std::string* why);
  ~DeviceDigests();
  DeviceDigests(const DeviceDigests&) = delete;

  // For one that was made before the seed was known.
  void set_seed(uint64_t seed);

  // Code of the call that fails, whose name is then in failed(), or 0. Nothing else may be changing
  // these ranges.
  int compute(std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out);
  const char* failed() const { return failed_; }

  // Has so many slices hashed in a stream, where all three lie for the device. Any thread.
  int launch(uint64_t slices, uint64_t sums, unsigned count, CUstream stream) const;
  const checkpoint::NhKey& key() const { return key_; }
  // nullptr: the device has no memory for it, or it was given back.
  Staging* staging(unsigned which) const { return stagings_[which].get(); }
  // Gives their memory back, when nothing uses them. False: there are none.
  bool drop_stagings();

 private:
  // A slice's block, and how many tiles it has.
  struct Work {
    size_t range;
    uint64_t tiles;
  };
  DeviceDigests(const backend::Table& table, uint64_t seed);
  std::string load(int ordinal, std::span<const KernelImage> images);
  std::string share_memory();
  std::string try_out();
  int launch_work();
  int check(int code, const char* call);

  const backend::Table& table_;
  checkpoint::NhKey key_;
  checkpoint::KernelArgument argument_;  // but for slices and sums
  MappedMemory mapped_;                  // kSlices Slice, then as many sums
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  checkpoint::Slice* slices_ = nullptr;
  const checkpoint::Number* sums_ = nullptr;
  std::vector<Work> work_;  // of the slices
  std::vector<checkpoint::NhSum> of_ranges_;
  const char* failed_ = "";
  std::array<std::unique_ptr<Staging>, kStagings> stagings_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_DIGEST_DEVICE_DIGESTS_H_
