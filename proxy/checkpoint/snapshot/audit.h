// A cut that another process has made, against memory that a replay has brought to the same place:
// are the contents the same? (docs/concepts/audit.md)
#ifndef PYFT_CHECKPOINT_SNAPSHOT_AUDIT_H_
#define PYFT_CHECKPOINT_SNAPSHOT_AUDIT_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "checkpoint/device.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/recovery/recovery.h"
#include "checkpoint/store/store_areas.h"

namespace pyft::checkpoint {

// What an audit has found so far. Two replays that find the same have the same `evidence`, in
// whatever order their streams have come to it.
class Findings : public Differences {
 public:
  explicit Findings(DigestKey key) : key_(key) {}
  // A value that was handed out, or given to others, is another one here. Any thread.
  void differs(const Difference& difference) override;
  void cannot_tell(const Difference& difference) override;
  // Compares all blocks of `cut`, whose entries follow those of `from`. A block with bytes that
  // were not live at `from` may have some that nothing has written: if it differs it is only
  // counted as fresh. Precondition: the memory can be looked at, and stands still. Empty, or why
  // not.
  std::string compare(const StoredSnapshot& from, const StoredSnapshot& cut, DeviceMemory& memory);

  uint64_t differing() const { return differing_; }
  uint64_t fresh() const { return fresh_; }
  uint64_t bytes() const { return bytes_; }  // of the blocks that were compared
  ring::Digest evidence() const { return evidence_; }
  const std::string& first() const { return first_; }  // a sentence about the first that differs
  // About the first of which it cannot be told; such are no evidence. Empty: there is none.
  const std::string& doubt() const { return doubt_; }

 private:
  void add(const void* what, uint64_t bytes, const std::string& sentence);

  const DigestKey key_;
  std::mutex mutex_;
  uint64_t differing_ = 0, fresh_ = 0, bytes_ = 0;
  ring::Digest evidence_{};
  std::string first_, doubt_;
};

// Ranges of addresses, merged where they touch.
class Ranges {
 public:
  void add(uint64_t address, uint64_t bytes);
  bool contains(uint64_t address, uint64_t bytes) const;

 private:
  std::map<uint64_t, uint64_t> ends_;  // by where they begin
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_AUDIT_H_
