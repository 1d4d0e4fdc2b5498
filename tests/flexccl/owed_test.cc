// Two ranks with records that die one after the other: what one has given to the other, and the
// other has not got, or has got already, when both come back.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "crew.h"

namespace {

constexpr std::size_t kCount = 3000;
using Values = std::vector<float>;

struct alignas(64) Arena {
  std::byte bytes[1 << 20] = {};
};

// Ranks 0 and 1 with a region each. Those that died are ended with the crew: their threads may
// still be waiting for each other.
struct Couple : Crew {
  std::unique_ptr<Arena> arenas[2] = {std::make_unique<Arena>(), std::make_unique<Arena>()};

  Couple() : Crew(2, flexcclLoopback) {
    for (const int rank : {0, 1})
      must(flexcclSetRecords(at(rank), arenas[rank]->bytes, sizeof arenas[rank]->bytes), "records");
  }
  ~Couple() {
    for (ncclComm_t& comm : comms)
      if (comm) ncclCommAbort(std::exchange(comm, nullptr));
  }
  // The rank dies; a new one goes back to `operation`, but repeats nothing yet.
  void replace_by_records(int rank, std::uint64_t operation) {
    kill(rank);
    flexcclInfo_t info;
    ncclComm_t fresh = recruit(rank, &info);
    must(flexcclReplay(fresh, arenas[rank]->bytes, sizeof arenas[rank]->bytes, operation),
         "replay");
    must(ncclReplaceNode(at(1 - rank), rank, &info), "ncclReplaceNode");
    must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
    at(rank) = fresh;
  }
  ncclResult_t send(int rank, const Values& values) {
    return ncclSend(values.data(), kCount, ncclFloat32, 1 - rank, at(rank), nullptr);
  }
  ncclResult_t receive(int rank, Values* values) {
    return ncclRecv(values->data(), kCount, ncclFloat32, 1 - rank, at(rank), nullptr);
  }
  ncclResult_t sum(int rank, Values* values) {
    return ncclAllReduce(values->data(), values->data(), kCount, ncclFloat32, ncclSum, at(rank),
                         nullptr);
  }
  void finish(int rank) {
    if (flexcclSynchronize(at(rank)) == ncclSuccess) return;
    std::cerr << "rank " << rank << ": " << ncclGetLastError(at(rank)) << "\n";
    CHECK(!"synchronize");
  }
};

void moment() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace

// Rank 0 died in a batch whose message rank 1 has recorded. Its replacement repeats the batch while
// that of rank 1 has repeated nothing yet, and must not send what is in the records there.
TEST(a_message_that_is_recorded_is_not_sent_again) {
  const Values first(kCount, 1.0f), second(kCount, 2.0f), reply(kCount, 3.0f);
  Values got(kCount), answer(kCount);
  Couple couple;
  const auto begin = [&] {
    ncclGroupStart();
    couple.send(0, first);
    couple.receive(0, &answer);
    ncclGroupEnd();
  };
  begin();
  couple.receive(1, &got);
  couple.finish(1);
  CHECK(got == first);
  couple.replace_by_records(0, 0);
  couple.replace_by_records(1, 0);
  begin();
  moment();  // it asks rank 1 what has come
  got.assign(kCount, 0.0f);
  couple.receive(1, &got);
  couple.finish(1);
  CHECK(got == first);
  couple.send(1, reply);
  couple.finish(0);
  CHECK(answer == reply);
  couple.send(0, second);
  couple.receive(1, &got);
  couple.finish(1);
  CHECK(got == second);
}

// Rank 1 died before it had the sum that rank 0 has. So did rank 0, whose replacement begins after
// it: what it has recorded is there for rank 1.
TEST(the_last_result_outlives_a_rank_that_begins_after_it) {
  const Values ones(kCount, 1.0f), twos(kCount, 2.0f), sum(kCount, 3.0f), next(kCount, 6.0f);
  Values mine = ones, yours = twos;
  // Its second frame is the last that rank 1 lacks, which has sent all of its own by then.
  must(flexcclSetFault("delay:rank=0,frame=2,ms=100;cut:rank=1,on=receive,frame=2"), "fault");
  Couple couple;
  couple.sum(0, &mine);
  couple.sum(1, &yours);
  couple.finish(0);
  CHECK(mine == sum);
  CHECK(flexcclSynchronize(couple.at(1)) != ncclSuccess);
  must(flexcclSetFault(nullptr), "fault");
  CHECK_EQ(state_of(couple.at(0)).owed, 0u);
  couple.replace_by_records(1, 0);
  couple.replace_by_records(0, 1);
  yours = twos;
  couple.sum(1, &yours);
  couple.finish(1);
  CHECK(yours == sum);
  couple.sum(0, &mine);
  couple.sum(1, &yours);
  for (const int rank : {0, 1}) {
    couple.finish(rank);
    CHECK_EQ(state_of(couple.at(rank)).operation, 2u);
  }
  CHECK(mine == next && yours == next);
}

TEST(what_only_this_process_has_is_told) {
  const Values first(kCount, 1.0f);
  Values mine(kCount, 1.0f), yours(kCount, 2.0f), got(kCount), parts(kCount);
  Couple couple;
  couple.sum(0, &mine);
  couple.sum(1, &yours);
  couple.finish(0);
  CHECK_EQ(state_of(couple.at(0)).owed, 0u);
  couple.send(0, first);
  couple.finish(0);
  CHECK_EQ(state_of(couple.at(0)).owed, 2u);
  must(flexcclAskAround(couple.at(0)), "flexcclAskAround");
  moment();
  CHECK_EQ(state_of(couple.at(0)).owed, 2u);
  couple.receive(1, &got);
  couple.finish(1);
  must(flexcclAskAround(couple.at(0)), "flexcclAskAround");
  CHECK(comes([&] { return state_of(couple.at(0)).owed == 0; }));
  // What goes into a scattered sum is in the records of none.
  for (const int rank : {0, 1})
    ncclReduceScatter(rank ? yours.data() : mine.data(), parts.data() + rank * (kCount / 2),
                      kCount / 2, ncclFloat32, ncclSum, couple.at(rank), nullptr);
  couple.finish(0);
  couple.finish(1);
  CHECK(comes([&] { return state_of(couple.at(0)).owed == 0; }));
}

// Both have all they need of each other, and one ends before the other asks it.
TEST(who_ends_says_what_it_has) {
  const Values first(kCount, 1.0f), last(kCount, 2.0f);
  Values sums[] = {Values(kCount, 1.0f), Values(kCount, 2.0f)}, got(kCount);
  Couple couple;
  const auto end = [&](int rank) {
    must(ncclCommDestroy(std::exchange(couple.at(rank), nullptr)), "ncclCommDestroy");
  };
  couple.send(0, first);
  couple.receive(1, &got);
  for (const int rank : {0, 1}) couple.sum(rank, &sums[rank]);
  couple.send(0, last);
  couple.receive(1, &got);
  for (const int rank : {0, 1}) couple.finish(rank);
  CHECK(got == last);
  end(1);
  must(flexcclAskAround(couple.at(0)), "flexcclAskAround");
  CHECK(comes([&] { return state_of(couple.at(0)).kept_bytes == 0; }));
  end(0);
}

// What only a replacement of the other one could ask for stays.
TEST(who_ends_without_having_all_says_that) {
  const Values first(kCount, 1.0f);
  Couple couple;
  couple.send(0, first);
  couple.finish(0);
  must(ncclCommDestroy(std::exchange(couple.at(1), nullptr)), "ncclCommDestroy");
  must(flexcclAskAround(couple.at(0)), "flexcclAskAround");
  moment();
  CHECK_EQ(state_of(couple.at(0)).owed, 1u);
  CHECK(state_of(couple.at(0)).kept_bytes > 0);
}

// A replacement has nothing of an operation that found no room for its record.
TEST(what_has_no_record_is_owed) {
  constexpr std::size_t kRecordBytes = 16384;  // for one sum
  Values mine(kCount, 1.0f), yours(kCount, 2.0f);
  const auto small = std::make_unique<Arena>();
  Couple couple;
  must(flexcclSetRecords(couple.at(0), small->bytes, kRecordBytes), "flexcclSetRecords");
  const auto both = [&](std::uint64_t owed) {
    // Its second frame is the last that rank 1 lacks.
    must(flexcclSetFault("delay:rank=0,frame=2,ms=300"), "fault");
    couple.sum(0, &mine);
    couple.sum(1, &yours);
    couple.finish(0);
    CHECK_EQ(state_of(couple.at(0)).owed, owed);
    couple.finish(1);
    must(flexcclSetFault(nullptr), "fault");
  };
  both(0);
  CHECK_EQ(state_of(couple.at(0)).recorded, 1);
  both(2);
  CHECK_EQ(state_of(couple.at(0)).recorded, 0);
}

CHECK_MAIN
