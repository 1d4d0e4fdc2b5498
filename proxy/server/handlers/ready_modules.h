// Modules that a server has loaded while it stood by, before it knew whose modules it would
// need. Nothing has run in them: their variables have the contents of a module that is loaded now.
#ifndef PYFT_SERVER_HANDLERS_READY_MODULES_H_
#define PYFT_SERVER_HANDLERS_READY_MODULES_H_

#include <cstdint>
#include <list>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/device.h"
#include "checkpoint/digest/digest.h"
#include "server/handlers/live_objects.h"

namespace pyft::server {

// What an image is known by, until its bytes are compared.
struct ImageKey {
  uint64_t bytes = 0;
  ring::Digest digest{};
  bool operator==(const ImageKey&) const = default;
  bool operator<(const ImageKey& other) const {
    return std::tie(bytes, digest.low, digest.high) <
           std::tie(other.bytes, other.digest.low, other.digest.high);
  }
};

ImageKey key_of(std::span<const std::byte> image);

class ReadyModules {
 public:
  // Images of all of them together, and how much of the device's memory stays free: a 32nd.
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  static constexpr uint64_t kFreeShare = 32;

  explicit ReadyModules(const backend::Table& table) : table_(table) {}
  ReadyModules(const ReadyModules&) = delete;
  ReadyModules& operator=(const ReadyModules&) = delete;

  // Whether there is room for one more.
  bool has_room(uint64_t bytes) const;
  // 0, or the driver's code.
  int load(std::vector<std::byte> image);
  // One of those with these bytes.
  void unload_one(const ImageKey& key);
  // Where functions are loaded when they are first looked up, these are from now on.
  void look_up(const ImageKey& key, const std::set<std::string>& functions);
  void unload_all();

  const std::vector<ImageKey>& keys() const { return keys_; }

  // Decides which of them become the modules of a committed snapshot, given in the order in which
  // the program has loaded them, and unloads the others. None, unless they are the first ones in
  // this order, so that all is as if they were loaded now, or all variables that are restored lie
  // where they lay: pointers to them may be anywhere. How many.
  size_t choose(std::span<const checkpoint::ModuleImage> wanted,
                std::span<const ring::ManifestPlace> places);
  // The one that was chosen for this handle, if it was. It is the caller's from now on.
  bool take(uint64_t handle, std::span<const std::byte> image, LoadedModule* out);

 private:
  struct Ready {
    std::vector<std::byte> image;
    ImageKey key;
    CUmodule module = nullptr;
    std::vector<checkpoint::MemoryRange> variables;
    std::set<std::string> functions;  // looked up
    uint64_t handle = 0;              // that it is chosen for
  };
  std::list<Ready>::iterator unload(std::list<Ready>::iterator one);
  bool are_the_first(std::span<const checkpoint::ModuleImage> wanted) const;
  bool lie_where_they_lay(std::span<const ring::ManifestPlace> places) const;
  void list_keys();

  const backend::Table& table_;
  std::list<Ready> all_;  // in the order in which they were loaded
  std::vector<ImageKey> keys_;
  uint64_t bytes_ = 0;
  bool unloaded_ = false;  // some, which leaves gaps
};

// Modules of this session come from there while its objects are restored.
void use_ready_modules(Session& session, ReadyModules* ready);
bool take_ready_module(Session& session, uint64_t handle, std::span<const std::byte> image,
                       LoadedModule* out);

}  // namespace pyft::server

#endif  // PYFT_SERVER_HANDLERS_READY_MODULES_H_
