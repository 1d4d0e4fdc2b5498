// Entries whose work a profiler wants to see, and the calls of the program that they belong to.
#ifndef PYFT_CLIENT_DEVICE_PROFILED_H_
#define PYFT_CLIENT_DEVICE_PROFILED_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "api/call_ids.h"
#include "profiling/activities.h"
#include "ring/layout.h"

namespace pyft::client {

// Of one device, since its last profile. Threads: any.
class ProfiledEntries {
 public:
  struct Entry {
    uint64_t seq;
    uint32_t call;   // correlation id
    uint16_t kinds;  // that were wanted then
    bool seen;       // the server has told of work for it, or need not
  };

  // `incarnation`: of the server that the entry is for, as far as is known. Not `certain`: the
  // device may do nothing for it.
  void note(uint64_t seq, uint32_t call, uint32_t incarnation, bool certain = true);
  bool any();
  // The entry of a record, which is seen now; nothing if no profiler has wanted it.
  std::optional<Entry> see(uint64_t seq);
  // Ends the profile. Entries that nothing was told of, if the server is another one than when the
  // profile began: it has taken what it knew of them with it.
  uint64_t end(uint32_t incarnation);

 private:
  std::mutex mutex_;
  std::vector<Entry> entries_;
  bool sorted_ = true;
  uint32_t incarnation_ = 0;  // of the first entry's server
};

// Around the appending of one entry. A call of a library is a launch of the library's own: for a
// program that is in no call of the runtime it becomes one here.
class ProfiledEntry {
 public:
  ProfiledEntry(ProfiledEntries& entries, Call call, uint16_t flags) {
    if (profiling::wanted(profiling::kDeviceWork)) [[unlikely]]
      begin(entries, call, flags);
  }
  uint16_t flags() const { return entries_ ? ring::kProfiled : 0; }
  void appended(uint64_t seq, const ring::ControlPage& page) {
    if (entries_) [[unlikely]]
      entries_->note(seq, profiling::current_call(), page.epoch, certain_);
  }

 private:
  void begin(ProfiledEntries& entries, Call call, uint16_t flags);

  ProfiledEntries* entries_ = nullptr;
  bool certain_ = true;
  std::optional<profiling::RuntimeCall> launch_;
};

}  // namespace pyft::client

#endif  // PYFT_CLIENT_DEVICE_PROFILED_H_
