// A program's settings of a communicator, as the server's NCCL takes them.
#ifndef PYFT_SERVER_SESSION_NCCL_CONFIG_H_
#define PYFT_SERVER_SESSION_NCCL_CONFIG_H_

#include <cstddef>
#include <span>

#include "api/nccl_settings.h"

namespace pyft::server {

// The bytes of an NcclSettings; none: the library's own choices, or those of the communicator that
// is divided. Names that the config has live as long as the process, since NCCL may keep them.
class NcclConfig {
 public:
  // False: these bytes are no settings.
  bool read(std::span<const std::byte> settings);
  // For the calls of NCCL; nullptr without settings.
  ncclConfig_t* get() { return given_ ? &config_ : nullptr; }

 private:
  bool given_ = false;
  ncclConfig_t config_ = empty_nccl_config();
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_SESSION_NCCL_CONFIG_H_
