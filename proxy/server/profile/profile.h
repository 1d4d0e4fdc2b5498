// The server's part in a profile of the program: which work its device has done for which entry.
#ifndef PYFT_SERVER_PROFILE_PROFILE_H_
#define PYFT_SERVER_PROFILE_PROFILE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "server/profile/collected.h"
#include "server/session/session.h"

namespace pyft::server {

// In the dispatch thread. One in a process, since CUPTI's callbacks know of no other.
class Profile {
 public:
  // From here on what is asked of the device is for this entry. The first one makes CUPTI begin.
  // False: there is no CUPTI, as a line in the log has said.
  bool begin_entry(uint64_t seq);
  void end_entry();
  // All that is known by now, as ProfiledWork and names.
  const std::vector<std::byte>& collect();
  std::span<const std::byte> collected() const { return ready_; }
  // Records for which CUPTI had no room, since the last call.
  uint64_t take_dropped();
  // Nothing more is wanted.
  void end();

 private:
  bool start();

  backend::Cupti cupti_;
  Collected collected_;
  std::vector<std::byte> ready_;
  uint64_t dropped_ = 0;
  bool runs_ = false, failed_ = false;
};

// What an entry asks of the device, while this lives, if the client has marked it (kProfiled). Not
// in a replay: the server that did it first has recorded it, or it is lost.
class ProfiledEntry {
 public:
  ProfiledEntry(Session& session, const ring::EntryHeader& header) {
    if (header.flags & ring::kProfiled) [[unlikely]]
      begin(session, header.seq);
  }
  ~ProfiledEntry() {
    if (profile_) [[unlikely]]
      profile_->end_entry();
  }
  ProfiledEntry(const ProfiledEntry&) = delete;
  ProfiledEntry& operator=(const ProfiledEntry&) = delete;

 private:
  void begin(Session& session, uint64_t seq);

  Profile* profile_ = nullptr;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_PROFILE_PROFILE_H_
