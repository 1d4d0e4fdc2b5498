// The digest of nh.h, computed by the device for any number of blocks in a few launches.
//
// The kernel's table of work and its results lie in host memory that the device sees, its keys are
// an argument: the module has no variables, and nothing is allocated on the device. It runs in a
// stream of its own that does not synchronise with the program's. Dispatch thread only.
#ifndef PYFT_SERVER_DIGEST_DEVICE_DIGESTS_H_
#define PYFT_SERVER_DIGEST_DEVICE_DIGESTS_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/digest/nh.h"
#include "checkpoint/memory_range.h"
#include "server/digest/images.h"

namespace pyft::server {

class DeviceDigests {
 public:
  // nullptr, and why. `table` must outlive this. The module is loaded here: in each server before
  // the program's, which so come to lie where they lay in the server before.
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

 private:
  // A slice's block, and how many tiles it has.
  struct Work {
    size_t range;
    uint64_t tiles;
  };
  DeviceDigests(const backend::Table& table, uint64_t seed);
  std::string load(int ordinal, std::span<const KernelImage> images);
  std::string share_memory();
  int launch();
  int check(int code, const char* call);

  const backend::Table& table_;
  checkpoint::NhKey key_;
  checkpoint::KernelArgument argument_;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  void* memory_ = nullptr;  // kSlices Slice, then as many sums
  checkpoint::Slice* slices_ = nullptr;
  const checkpoint::Number* sums_ = nullptr;
  std::vector<Work> work_;  // of the slices
  std::vector<checkpoint::NhSum> of_ranges_;
  const char* failed_ = "";
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_DIGEST_DEVICE_DIGESTS_H_
