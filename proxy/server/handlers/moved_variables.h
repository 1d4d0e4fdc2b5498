// Variables of modules that a driver has put elsewhere than in the server whose memory is restored.
// Kernels find them all the same, and so do contents; a program that knows an address does not.
#ifndef PYFT_SERVER_HANDLERS_MOVED_VARIABLES_H_
#define PYFT_SERVER_HANDLERS_MOVED_VARIABLES_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ring/store_layout.h"
#include "server/handlers/live_objects.h"

namespace pyft::server {

class MovedVariables {
 public:
  // `before`: where they lay at the committed snapshot. Empty, or which of them cannot be restored.
  std::string find(const std::map<uint64_t, LoadedModule>& modules,
                   std::span<const ring::ManifestPlace> before);
  size_t count() const { return moves_.size(); }
  // Where what lay at the address lies now.
  uint64_t now_at(uint64_t before) const;
  // Whether something else than before lies at the address.
  bool moved_to(uint64_t now) const;

 private:
  struct Move {
    uint64_t before, now, bytes;
  };
  std::vector<Move> moves_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_HANDLERS_MOVED_VARIABLES_H_
