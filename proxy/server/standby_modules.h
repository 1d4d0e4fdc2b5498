// What a server that stands by does about modules: it loads those of the clients whose place it may
// take, one at a time, and keeps up with them. It reads their object logs (ring/object_log.h),
// which they do not notice.
#ifndef PYFT_SERVER_STANDBY_MODULES_H_
#define PYFT_SERVER_STANDBY_MODULES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "pyft/unique_fd.h"
#include "ring/channel.h"
#include "server/handlers/ready_modules.h"

namespace pyft::server {

class StandbyModules {
 public:
  static constexpr int kLookMs = 500;   // how often the logs are looked at
  static constexpr uint64_t kRest = 4;  // it rests so many times as long as it has worked

  explicit StandbyModules(ReadyModules& ready) : ready_(ready) {}

  // The log of a client whose modules may be needed; what is no log is left alone.
  void follow(uint64_t client, UniqueFd log);
  void forget(uint64_t client) { logs_.erase(client); }
  // Does one piece of work, if there is any: after how many ms there may be another one.
  int turn();
  // Gives back the device's memory, and takes none any more.
  void give_up();
  // No log is looked at any more: what is loaded stays.
  void end() { logs_.clear(); }

 private:
  struct Image {
    ImageKey key;
    uint64_t offset = 0;  // of the bytes, in the object log
    std::set<std::string> functions;
  };
  struct Log {
    using Images = std::unordered_map<uint64_t, Image>;  // by sequence number
    UniqueFd fd;
    ring::Mapping mapping;
    ring::LogView view;
    Images images;
    std::vector<uint64_t> order;  // of loads, as in the log
    uint64_t begin = 0;           // of the object log, when it was looked at
  };
  using Counts = std::map<ImageKey, size_t>;
  static void look(Log& log);
  static uint64_t begin_of(const Log& log);
  void count_wanted();
  bool unload_surplus();
  bool load_missing();
  bool load(const Log& log, const Image& image);
  void look_up_functions();

  ReadyModules& ready_;
  std::map<uint64_t, Log> logs_;
  Counts wanted_;
  std::set<ImageKey> refused_;  // by the driver
  bool given_up_ = false;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_STANDBY_MODULES_H_
