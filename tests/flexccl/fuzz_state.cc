// Fuzzes what outlives a process or comes through the hands of others: records in shared memory,
// and the infos of the repair calls.
#include <memory>
#include <span>

#include "base/error.h"
#include "flexccl.h"
#include "fuzz.h"
#include "oplog/operation_log.h"

namespace {

constexpr std::size_t kArena = 8192, kFront = 1024;
const flexccl::RecordOwner kOwner{.comm = 7, .slot = 1, .slots = 3, .members = {0, 1, 2}};

struct alignas(64) Arena {
  std::byte bytes[kArena];
  std::span<std::byte> span() { return bytes; }
};

// What `body` throws must be one of the library's errors; says whether it threw.
template <class Body>
bool refuses(Body body) {
  try {
    body();
    return false;
  } catch (const flexccl::Error& error) {
    FUZZ_CHECK(error.code == ncclInvalidArgument || error.code == ncclInvalidUsage);
    return true;
  }
}

flexccl::OpDescriptor operation(Random& random) {
  return {.collective = flexccl::Collective::kAllReduce, .count = random.below(3)};
}

void fuzz_records(Random& random) {
  auto arena = std::make_unique<Arena>();
  std::byte payload[300] = {};
  flexccl::OperationLog writer;
  flexccl::LogPosition now;
  writer.begin(arena->span(), kOwner, now);
  const std::uint64_t operations = random.below(20);  // not always so many fit
  for (; now.operation < operations; ++now.operation, ++now.sequence) {
    const std::span<const std::byte> output(payload, random.below(sizeof payload));
    flexccl::OperationResult outcome{.op = operation(random), .outputs = {&output, 1}};
    if (random.once_in(4)) {
      outcome.op = {.collective = flexccl::Collective::kSendRecv};
      outcome.changed = {{2, {now.operation, 1}}};
    }
    writer.enter(now.operation + 1, now.sequence, static_cast<std::uint32_t>(random.below(2)),
                 kOwner.members);
    writer.append(now, outcome);
    if (random.once_in(3)) writer.commit(random.below(now.operation + 2));
  }
  const std::uint64_t from = writer.usage().committed;
  if (!random.once_in(8)) {
    Message bytes(sizeof *arena);
    std::memcpy(bytes.data(), arena->bytes, kArena);
    Message front(bytes.begin(), bytes.begin() + kFront);  // where most of the structure is
    scramble(random, random.once_in(2) ? &front : &bytes, 6);
    std::copy(front.begin(), front.end(), bytes.begin());
    std::memcpy(arena->bytes, bytes.data(), kArena);
  }
  flexccl::OperationLog reader;
  static_cast<void>(refuses([&] {
    const auto [stand, end] = reader.adopt(arena->span(), kOwner, from);
    for (int i = 0; i < 30 && reader.replaying(); ++i) {
      std::byte to[300];
      const std::span<std::byte> output(to, random.below(sizeof to));
      static_cast<void>(refuses([&] { reader.replay({.op = operation(random)}, {&output, 1}); }));
    }
    reader.commit(end.operation);
  }));
  static_cast<void>(refuses([&] { flexccl::OperationLog::forget(arena->span()); }));
}

void fuzz_info(Random& random) {
  flexcclSetTransport(flexcclLoopback);
  flexcclSetTimeout(300);
  ncclUniqueId raw;
  ncclComm_t comms[2] = {}, joined = nullptr;
  FUZZ_CHECK(ncclGetUniqueId(&raw) == ncclSuccess);
  ncclGroupStart();
  for (int r = 0; r < 2; ++r) ncclCommInitRank(&comms[r], 2, raw, r);
  FUZZ_CHECK(ncclGroupEnd() == ncclSuccess);
  flexcclInfo_t info{}, reply{};
  FUZZ_CHECK(ncclCommExportInfo(comms[0], 1, &info) == ncclSuccess);
  FUZZ_CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
  const auto damage = [&](flexcclInfo_t* of) {
    Message bytes = message_of(*of);
    bytes.resize(random.once_in(2) ? 200 : bytes.size());
    scramble(random, &bytes);
    std::memcpy(static_cast<void*>(of), bytes.data(), bytes.size());
  };
  flexcclInfo_t damaged = info;
  damage(&damaged);
  const bool same = std::memcmp(&damaged, &info, sizeof info) == 0;
  if (const auto code = ncclInitNewNode(&joined, &damaged, 1, &reply); code != ncclSuccess) {
    FUZZ_CHECK(!same && joined == nullptr);
    FUZZ_CHECK(ncclInitNewNode(&joined, &info, 1, &reply) == ncclSuccess);
  }
  damaged = reply;
  damage(&damaged);
  static_cast<void>(ncclReplaceNode(comms[0], 1, &damaged));
  ncclCommAbort(comms[0]);
  ncclCommAbort(joined);
}

}  // namespace

int main(int argc, char** argv) {
  return fuzz_main(argc, argv, [](Random& random) {
    for (int i = 0; i < 20; ++i) fuzz_records(random);
    fuzz_info(random);
  });
}
