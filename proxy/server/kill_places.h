// Where a test ends the server: PYFT_KILL_AT, in the grammar of docs/fault-points.md.
#ifndef PYFT_SERVER_KILL_PLACES_H_
#define PYFT_SERVER_KILL_PLACES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pyft::server {

// Before the `entry`-th entry after the `cut`-th cut that the server sees.
struct KillPlace {
  uint64_t entry = 0, cut = 0;
  std::optional<uint64_t> rank;  // without it: whichever this is
  std::optional<uint64_t> note;  // byte of the control page where it is noted
};

// Reads `kill:C,cut=S[,rank=R][,note=N][;...]`. Empty, or a sentence that says what is wrong.
std::string read_kill_places(std::string_view text, std::vector<KillPlace>* places);

}  // namespace pyft::server

#endif  // PYFT_SERVER_KILL_PLACES_H_
