// Executions with equal inputs, found by their contents: equal inputs must give equal outputs.
#ifndef PYFT_SERVER_DMR_PAIRS_H_
#define PYFT_SERVER_DMR_PAIRS_H_

#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "ring/store_layout.h"

namespace pyft::server::dmr {

using ring::Digest;

struct DigestHash {
  size_t operator()(const Digest& digest) const { return digest.low; }
};

// Of one interval between cuts. Any thread.
class Pairs {
 public:
  // Beyond this first executions are not kept: their second ones are not compared.
  static constexpr size_t kMost = 1 << 16;

  enum class Found {
    kFirst,      // of these inputs
    kForgotten,  // likewise, and there was no room for it
    kEqual,      // the second one, with the same outputs
    kMismatch,   // and with others
  };
  struct Outcome {
    Found found;
    uint64_t first_seq = 0;  // the entry that had these inputs before
    Digest first_outputs{};  // and what it gave
    uint64_t first_name = 0;
  };
  // An execution by entry `seq`. A pair is forgotten: a third execution is a first one again.
  // `name`: by which the caller knows it.
  Outcome add(const Digest& inputs, const Digest& outputs, uint64_t seq, uint64_t name = 0);

 private:
  struct Execution {
    uint64_t seq;
    Digest outputs;
    uint64_t name;
  };
  std::mutex mutex_;
  std::unordered_map<Digest, Execution, DigestHash> firsts_;
};

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_PAIRS_H_
