// A row of different operations, each with what a program would make of its result.
#ifndef PYFT_TESTS_FLEXCCL_SCRIPT_H_
#define PYFT_TESTS_FLEXCCL_SCRIPT_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "flexccl.h"

inline constexpr int kRanks = 4, kOperations = 24;
inline constexpr std::size_t kBlock = 301, kAll = kRanks * kBlock;
inline constexpr std::uint64_t kCommitted = 7;
using State = std::array<float, kAll>;

struct alignas(64) Arena {
  std::byte bytes[1 << 20];
};

inline State start_state(int rank) {
  State state;
  for (std::size_t i = 0; i < kAll; ++i)
    state[i] = 1.0f / static_cast<float>(5 * i + 3 * static_cast<std::size_t>(rank) + 1);
  return state;
}

inline ncclResult_t pass_on(const State& from, State* to, int rank, ncclComm_t comm) {
  ncclGroupStart();
  ncclSend(from.data(), kAll, ncclFloat32, (rank + 1) % kRanks, comm, nullptr);
  ncclRecv(to->data(), kAll, ncclFloat32, (rank + kRanks - 1) % kRanks, comm, nullptr);
  return ncclGroupEnd();
}

// One operation, and what a program would make of its result.
inline ncclResult_t step(int k, int rank, ncclComm_t comm, State* state) {
  State other = *state;
  ncclResult_t code = ncclSuccess;
  switch (k % 6) {
    case 0:
      return ncclAllReduce(state->data(), state->data(), kAll, ncclFloat32, ncclAvg, comm, nullptr);
    case 1:
      code = ncclReduceScatter(state->data(), other.data(), kBlock, ncclFloat32, ncclSum, comm,
                               nullptr);
      break;
    case 2:
      code = pass_on(*state, &other, rank, comm);
      break;
    case 3:
      code = ncclBcast(other.data(), kAll, ncclFloat32, k / 6 % kRanks, comm, nullptr);
      break;
    case 4:
      code = ncclAlltoAll(state->data(), other.data(), kBlock, ncclFloat32, comm, nullptr);
      break;
    default:
      code = ncclReduce(state->data(), other.data(), kAll, ncclFloat32, ncclMax, k % kRanks, comm,
                        nullptr);
  }
  if (code != ncclSuccess) return code;
  if (const ncclResult_t end = flexcclSynchronize(comm); end != ncclSuccess) return end;
  for (std::size_t i = 0; i < kAll; ++i) (*state)[i] = 0.75f * (*state)[i] + 0.3f * other[i];
  return ncclSuccess;
}

#endif  // PYFT_TESTS_FLEXCCL_SCRIPT_H_
