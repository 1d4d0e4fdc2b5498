// A new server that copies from another rank's GPU: what is right is taken, and whatever else comes
// of it the stores have it. The driver is of the test's making, and so are most replicas.
#include "check.h"
#include "comes.h"
#include "lending_ranks.h"

using namespace lending_ranks;  // NOLINT: a test

TEST(what_a_replica_has_comes_from_its_gpu) {
  const std::ptrdiff_t descriptors = lending_driver::open_descriptors();
  for (const bool digests : {false, true}) {
    Ranks ranks;
    ranks.spoil_store();
    Replica replica(ranks);
    const Restored done = ranks.restore(replica, digests);
    ranks.check_whole(done);
    CHECK_EQ(done.peer_bytes, kWorth);
    CHECK_EQ(done.refusal, "");
    CHECK_EQ(driver().copies, 4u);
  }
  CHECK_EQ(lending_driver::open_descriptors(), descriptors);
}

TEST(what_it_has_changed_comes_from_the_stores) {
  for (const bool digests : {false, true}) {
    Ranks ranks;
    auto changed = ranks.wanted;
    changed[(1 << 18) + 5] ^= std::byte{1};
    ranks.lend(changed);
    Replica replica(ranks);
    const Restored done = ranks.restore(replica, digests);
    ranks.check_whole(done);
    CHECK_EQ(done.peer_bytes, 400'000u);
  }
}

TEST(what_it_changes_meanwhile_does) {
  Ranks ranks;
  driver().on_copy = [&] { at(ranks.theirs)[7] ^= std::byte{1}; };
  Replica replica(ranks);
  const Restored done = ranks.restore(replica);
  ranks.check_whole(done);
  CHECK_EQ(done.peer_bytes, 500'000u);
}

TEST(who_has_gone_on_is_asked_no_more) {
  Ranks ranks;
  ranks.limits.round_bytes = 1;
  ranks.limits.wasted_bytes = 150'000;
  ranks.lend(std::vector<std::byte>(kWindow, std::byte{99}));
  Replica replica(ranks);
  const Restored done = ranks.restore(replica);
  ranks.check_whole(done);
  CHECK_EQ(done.peer_bytes, 0u);
  CHECK_EQ(driver().copies, 2u);
}

TEST(another_replica_may_have_what_one_has_not) {
  Ranks ranks;
  ranks.spoil_store();
  OddReplica none([](int link, uint64_t) {
    server::send_message(link, ring::msg::Memory{0, 0, CUDA_ERROR_INVALID_VALUE});
  });
  Replica replica(ranks);
  InTurn both({&none, &replica});
  const Restored done = ranks.restore(both);
  ranks.check_whole(done);
  CHECK_EQ(done.peer_bytes, kWorth);
}

TEST(a_block_that_it_has_given_back_comes_from_the_stores) {
  Ranks ranks;
  {
    const std::lock_guard lock(driver().mutex);
    close(driver().lent.at(ranks.theirs));
    driver().lent.erase(ranks.theirs);
    driver().sizes.erase(ranks.theirs);
  }
  Replica replica(ranks);
  const Restored done = ranks.restore(replica);
  ranks.check_whole(done);
  CHECK_EQ(done.peer_bytes, 300'000u);
  CHECK_EQ(done.refusal, "");
}

TEST(without_a_replica_all_comes_from_the_stores) {
  Ranks ranks;
  InTurn none({});
  const Restored done = ranks.restore(none);
  ranks.check_whole(done);
  CHECK_EQ(done.peer_bytes + driver().copies, 0u);
  CHECK_EQ(done.refusal, "");
}

TEST(replicas_that_answer_nonsense_are_left_alone) {
  namespace msg = ring::msg;
  struct Case {
    const char* refusal;
    bool leaves;
    OddReplica::Answer answer;
    uint64_t answers_ns = 20'000'000'000;
  };
  const auto send = [](uint64_t from, uint64_t bytes, uint64_t size, uint64_t offset_by = 0) {
    return [=](int link, uint64_t offset) {
      const UniqueFd memory(memfd_create("other", MFD_CLOEXEC));
      CHECK_EQ(ftruncate(memory.get(), static_cast<off_t>(size)), 0);
      const uint64_t begin = from + (offset_by ? offset + offset_by : 0);
      server::send_message(link, msg::Memory{begin, bytes, 0}, {}, memory.get());
    };
  };
  const Case cases[] = {
      {"it does not answer", false, [](int, uint64_t) {}, 100'000'000},
      {"it has ended", true, [](int, uint64_t) {}},
      {"it has ended", false, [](int link, uint64_t) { CHECK_EQ(write(link, "nonsense", 8), 8); }},
      {"it answers something else", false,
       [](int link, uint64_t) { server::send_message(link, msg::Store{}); }},
      {"it lends other memory than was asked for", false,
       [](int link, uint64_t) { server::send_message(link, msg::Memory{0, kWindow, 0}); }},
      {"it lends other memory than was asked for", false, send(0, 2 * kWindow, 2 * kWindow)},
      {"it lends other memory than was asked for", false, send(0, kPage, kPage, kPage)},
      {"it lends other memory than was asked for", false, send(0, 0, kPage)},
      {"it lends other memory than was asked for", false, send(~uint64_t{0} - 5, 100, kPage)},
      {"[cuMemMap] fails with code [1]", false, send(0, kWindow, kPage)},
      {"[cuMemImportFromShareableHandle] fails with code [1]", false,
       [](int link, uint64_t) {
         server::send_message(link, msg::Memory{0, kWindow, 0}, {}, link);
       }},
      {"it cannot lend its memory: code [801]", false,
       [](int link, uint64_t) {
         server::send_message(link, msg::Memory{0, 0, CUDA_ERROR_NOT_SUPPORTED});
       }},
  };
  for (const Case& one : cases) {
    const std::ptrdiff_t descriptors = lending_driver::open_descriptors();
    {
      Ranks ranks;
      ranks.limits.answers_ns = one.answers_ns;
      OddReplica replica(one.answer);
      replica.leaves = one.leaves;
      const Restored done = ranks.restore(replica);
      CHECK_EQ(done.refusal.substr(0, std::strlen(one.refusal)), one.refusal);
      ranks.check_whole(done);
      CHECK_EQ(done.peer_bytes, 0u);
    }
    CHECK_EQ(lending_driver::open_descriptors(), descriptors);
  }
}

TEST(drivers_that_refuse_leave_it_to_the_stores) {
  for (const int which : {0, 1, 2, 3}) {
    Ranks ranks;
    if (which == 0) driver().refuses_import = CUDA_ERROR_NOT_SUPPORTED;
    if (which == 1) driver().refuses_access = CUDA_ERROR_INVALID_DEVICE;
    if (which == 2) driver().refuses_export = CUDA_ERROR_NOT_SUPPORTED;
    if (which == 3) driver().refuses_read_only = true;
    Replica replica(ranks);
    const Restored done = ranks.restore(replica);
    ranks.check_whole(done);
    CHECK_EQ(done.peer_bytes, which == 3 ? kWorth : 0);
    CHECK(which > 1 || done.refusal.find(which ? "[cuMemSetAccess]" : "[cuMemImport") == 0);
    CHECK(driver().handles.empty());
  }
}

// What may still be copied could overwrite what the stores give.
TEST(copies_that_fail_or_do_not_come_end_the_restore) {
  for (const int state : {600, 700}) {
    Ranks ranks;
    driver().state = state;
    Replica replica(ranks);
    CHECK_EQ(ranks.restore(replica).problem,
             "copying from another rank's GPU fails with code [" + std::to_string(state) + "]");
    CHECK(!driver().mapped.empty());
    driver().mapped.clear();
    driver().reserved.clear();
  }
}

TEST(who_has_replaced_nobody_or_hashes_on_the_host_does_not_ask) {
  for (const char* const wanted : {"", "0", "1"})
    for (const bool digests : {false, true})
      for (const bool replaces : {false, true})
        for (const auto mode : {ring::ReplayMode::kNormal, ring::ReplayMode::kSerial}) {
          setenv("PYFT_PEER_MEMORY", wanted, 1);
          Bench bench;
          bench.channel->control().consumed = replaces ? 100 : 0;
          bench.channel->control().replay_mode = static_cast<uint32_t>(mode);
          AlwaysAlive alive;
          server::Session session(*bench.channel, &lending_driver::table(), alive);
          InTurn none({});
          const auto peers = server::make_peer_import(session, none, digests);
          const bool worth = *wanted == '1' || (!*wanted && digests);
          CHECK_EQ(peers != nullptr, worth && replaces && mode == ring::ReplayMode::kNormal);
        }
  unsetenv("PYFT_PEER_MEMORY");
}

TEST(only_the_window_is_lent_and_borrowers_may_go) {
  Ranks ranks;
  const uint64_t entered = driver().entered;
  std::vector<int> ends;
  {
    Replica replica(ranks);
    using ring::msg::Memory;
    server::AgentMessage answer{};
    const auto ask = [&](int link, uint64_t offset) -> std::optional<Memory> {
      server::send_message(link, ring::msg::WantMemory{offset});
      pollfd poller{link, POLLIN, 0};
      if (poll(&poller, 1, 5000) <= 0 || !server::receive_message(link, &answer)) return {};
      return answer.as<Memory>();
    };
    const auto refused = [&](int link, uint64_t offset) {
      const auto memory = ask(link, offset);
      return memory && memory->result == CUDA_ERROR_INVALID_VALUE;
    };
    for (int i = 0; i < 20; ++i) ends.push_back(replica.connect(0));
    CHECK(refused(ends[0], kWindow));
    CHECK(refused(ends[0], 3 << 20));
    const auto lent = ask(ends[0], 100);
    CHECK(lent && lent->result == 0 && lent->begin == 0 && lent->size == 2 << 20);
    close(answer.fd);
    CHECK(!ask(ends[19], 100));  // too many
    for (const int end : ends) close(end);
    UniqueFd again;
    std::optional<Memory> lent_again;
    CHECK(comes([&] {  // their threads have seen it
      again.reset(replica.connect(0));
      return (lent_again = ask(again.get(), 100)).has_value();
    }));
    CHECK(lent_again && lent_again->result == 0);
    close(answer.fd);
    ends = {replica.connect(0)};
    server::AgentMessage other{ring::MessageKind::kSpill, {}, {}, -1};
    CHECK(!replica.lending.lend(other));
  }
  char byte;
  CHECK_EQ(read(ends[0], &byte, 1), 0);  // its server has ended
  close(ends[0]);
  CHECK_EQ(driver().entered - entered, 18u);
}

CHECK_MAIN
