// How memory is copied that the server cannot look at: through page-locked pieces, pipelined, also
// beside the program's work and its snapshots; and what becomes of copies that fail or do not come.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <random>
#include <thread>

#include "alive.h"
#include "check.h"
#include "checkpoint/bytes_passed.h"
#include "checkpoint/memory/copier.h"
#include "checkpoint/memory/memory_writer.h"
#include "copying_driver.h"
#include "fake_device.h"
#include "server/device.h"
#include "server/digest/device_digests.h"
#include "server/recovery/device_copies.h"

namespace {

using namespace copying_driver;  // NOLINT: a test
using checkpoint::MemoryRange;
using server::DeviceCopies;
using server::PinnedRing;

constexpr uint64_t kPiece = PinnedRing::kPieceBytes;
constexpr uint64_t kSoonNs = 10'000'000'000, kAtOnceNs = 1'000'000;

std::vector<std::byte> noise(uint64_t bytes) {
  std::vector<std::byte> made(bytes);
  std::minstd_rand next(7);
  for (std::byte& one : made) one = static_cast<std::byte>(next() >> 8);
  return made;
}

uint64_t address_of(const std::vector<std::byte>& memory) {
  return reinterpret_cast<uint64_t>(memory.data());
}

auto only(const std::vector<std::byte>& device, const std::vector<std::byte>& content) {
  return checkpoint::only(checkpoint::Content{address_of(device), content.data(), content.size()});
}

struct Ring {
  Ring() {
    start_again();
    server::enter_thread(table(), nullptr);
    ring = PinnedRing::make(table(), nullptr, &why);
  }
  int read(const std::vector<std::byte>& device, std::vector<std::byte>* got,
           uint64_t patience_ns = kSoonNs) const {
    got->clear();
    return ring->read(
        checkpoint::only(MemoryRange{address_of(device), device.size()}),
        [&](const std::byte* piece, uint64_t bytes) {
          got->insert(got->end(), piece, piece + bytes);
        },
        patience_ns);
  }
  std::string why;
  std::unique_ptr<PinnedRing> ring;
};

constexpr uint64_t kSeed = 5;

// The kernel is the driver's.
std::shared_ptr<server::DeviceDigests> digests() {
  static const server::KernelImage image{0, nullptr, 0};
  driver().seed = kSeed;
  std::string why;
  std::shared_ptr<server::DeviceDigests> made =
      server::DeviceDigests::make(table(), 0, kSeed, {&image, 1}, &why);
  CHECK_EQ(why, "");
  return made;
}

// A server, whose device fails for good or for the program only.
struct Own {
  explicit Own(bool repairs = false, DeviceCopies::Patience patience = {}) {
    start_again();
    server::enter_thread(table(), nullptr);
    ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
    std::string error;
    channel = ring::Channel::create(shape, &error);
    if (repairs) protect();
    device.on_enter = [] { server::enter_thread(table(), nullptr); };
    session.emplace(*channel, &table(), alive, device);
    copies.emplace(*session, true, patience);
  }
  void protect() {
    ring::ChannelFds fds = channel->dup_fds();
    fds.store = UniqueFd(memfd_create("store", MFD_CLOEXEC));
    ring::ChannelSizes sizes = channel->sizes();
    sizes.store = 1 << 16;
    CHECK_EQ(ftruncate(fds.store.get(), 1 << 16), 0);
    std::string error;
    channel = ring::Channel::map(ring::Role::kServer, 0, std::move(fds), sizes, &error);
    CHECK_EQ(error, "");
    channel->control().protect = static_cast<uint32_t>(ring::Protect::kSnapshot);
  }
  int read_beside(const std::vector<std::byte>& device) {
    return copies->read_beside(checkpoint::only(MemoryRange{address_of(device), device.size()}),
                               [](const std::byte*, uint64_t) {});
  }
  std::unique_ptr<ring::Channel> channel;
  AlwaysAlive alive;
  FakeDevice device;
  std::optional<server::Session> session;
  std::optional<DeviceCopies> copies;
};

// Reads of the server's beside the device's work.
struct Beside : checkpoint::BackgroundReads {
  explicit Beside(Own& own) : own(own) {}
  int read_beside(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) override {
    return own.copies->read_beside(next, take);
  }
  int read_beside_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                         const checkpoint::TakeDigest& hashed) override {
    return own.copies->read_beside_hashed(next, take, hashed);
  }
  void enter() override { own.session->enter_device(); }
  Own& own;
};

struct Last : checkpoint::Copier::User {
  void copied(const checkpoint::Copier::Outcome& now) override { outcome = now; }
  checkpoint::Copier::Outcome outcome;
};

}  // namespace

TEST(what_is_read_and_written_is_what_is_there) {
  for (const uint64_t bytes :
       {uint64_t{1}, kPiece - 1, kPiece, kPiece + 1, 4 * kPiece, 4 * kPiece + 5, 11 * kPiece + 3}) {
    const Ring ring;
    const std::vector<std::byte> content = noise(bytes);
    std::vector<std::byte> got, device(bytes);
    CHECK_EQ(ring.read(content, &got), 0);
    CHECK(got == content);
    CHECK_EQ(ring.ring->write(only(device, content), kSoonNs), 0);
    CHECK(device == content);  // when it returns
    CHECK_EQ(ring.ring->rests(), 0);
    CHECK_EQ(driver().pageable, 0u);
    CHECK_EQ(driver().locks, 1u);
    CHECK(driver().flags == std::vector<unsigned>{CU_STREAM_NON_BLOCKING});
    CHECK_EQ(driver().copies, 2 * ((bytes + kPiece - 1) / kPiece));
  }
}

TEST(small_ranges_share_a_piece_and_large_ones_are_divided) {
  const Ring ring;
  const std::vector<std::byte> content = noise(6 * kPiece);
  std::minstd_rand random(3);
  std::vector<checkpoint::MemoryRange> ranges;
  std::vector<std::byte> wanted, got;
  for (const uint64_t most : {uint64_t{3}, uint64_t{5'000}, 2 * kPiece})
    for (int i = 0; i < 400 && (most < kPiece || i < 10); ++i) {
      const uint64_t bytes = 1 + random() % most, at = random() % (content.size() - bytes);
      ranges.push_back({address_of(content) + at, bytes});
      wanted.insert(wanted.end(), content.begin() + static_cast<long>(at),
                    content.begin() + static_cast<long>(at + bytes));
    }
  size_t i = 0, of = 0;
  uint64_t taken = 0;  // of a range
  const auto next = [&](checkpoint::MemoryRange* range) {
    if (i == ranges.size()) return false;
    *range = ranges[i++];
    return true;
  };
  const auto take = [&](const std::byte* piece, uint64_t bytes) {
    got.insert(got.end(), piece, piece + bytes);
    taken += bytes;
    CHECK(taken <= ranges[of].bytes);  // of no other range
    if (taken == ranges[of].bytes) ++of, taken = 0;
  };
  CHECK_EQ(ring.ring->read(next, take, kSoonNs), 0);
  CHECK(got == wanted);
  CHECK_EQ(of, ranges.size());
  CHECK_EQ(driver().pageable, 0u);
  CHECK(driver().records <= wanted.size() / kPiece + 3);  // pieces
}

TEST(small_contents_share_a_piece_on_their_way_down) {
  const Ring ring;
  const std::vector<std::byte> content = noise(3 * kPiece);
  std::vector<std::byte> device(content.size());
  std::minstd_rand random(4);
  uint64_t at = 0;
  const auto next = [&](checkpoint::Content* one) {
    const uint64_t bytes = std::min<uint64_t>(1 + random() % 9'000, content.size() - at);
    *one = {address_of(device) + at, content.data() + at, bytes};
    at += bytes;
    return bytes != 0;
  };
  CHECK_EQ(ring.ring->write(next, kSoonNs), 0);
  CHECK(device == content);
  CHECK_EQ(driver().pageable, 0u);
  CHECK(driver().records <= content.size() / kPiece + 2);  // pieces, of which some are not full
}

// What is handed over, and what is told of it.
struct Told {
  int code = 0;
  std::vector<std::vector<std::byte>> got;
  std::vector<ring::Digest> digests;
  bool fits() const {
    if (got.size() != digests.size()) return false;
    for (size_t i = 0; i < got.size(); ++i)
      if (digests[i] != checkpoint::nh_digest(got[i].data(), got[i].size(), kSeed)) return false;
    return true;
  }
};
Told read_hashed(DeviceCopies& copies, const std::vector<MemoryRange>& ranges) {
  Told told;
  size_t i = 0;
  bool begins = true;
  const auto next = [&](MemoryRange* range) {
    if (i == ranges.size()) return false;
    *range = ranges[i++];
    return true;
  };
  const auto take = [&](const std::byte* piece, uint64_t bytes) {
    if (std::exchange(begins, false)) told.got.emplace_back();
    told.got.back().insert(told.got.back().end(), piece, piece + bytes);
  };
  const auto hashed = [&](const ring::Digest& digest) {
    told.digests.push_back(digest);
    begins = true;
  };
  told.code = copies.read_hashed(next, take, hashed);
  return told;
}

TEST(the_device_hashes_what_it_hands_over) {
  Own own;
  own.copies->hash_by(digests());
  const std::vector<std::byte> content = noise(9 * kPiece);
  std::vector<MemoryRange> ranges;
  std::minstd_rand random(6);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kPiece - 1, kPiece, kPiece + 1,
                               4 * kPiece + 5, uint64_t{65'536}, uint64_t{65'537}})
    for (const uint64_t at : {0, 16, 3}) ranges.push_back({address_of(content) + at, bytes});
  for (int i = 0; i < 2'000; ++i)  // more than a piece has tiles for
    ranges.push_back({address_of(content) + random() % 1000, 1 + random() % 700});
  const uint64_t hashed = checkpoint::host_hashed;
  const Told told = read_hashed(*own.copies, ranges);
  CHECK_EQ(checkpoint::host_hashed, hashed);
  CHECK_EQ(told.code, 0);
  CHECK_EQ(told.got.size(), ranges.size());
  CHECK(told.fits());
  for (size_t i = 0; i < ranges.size(); ++i)
    CHECK(!std::memcmp(told.got[i].data(), reinterpret_cast<const void*>(ranges[i].address),
                       ranges[i].bytes));
}

// What is told is true of what is handed over, also when the program changes it meanwhile, and
// back.
TEST(no_change_meanwhile_comes_between_a_copy_and_its_digest) {
  Own own;
  own.copies->hash_by(digests());
  std::vector<std::byte> content = noise(5 * kPiece + 77);
  const ring::Digest before = checkpoint::nh_digest(content.data(), content.size(), kSeed);
  int changes = 0;
  driver().on_copy = [&] { content[(++changes / 2 % 6) * kPiece / 2] ^= std::byte{1}; };
  const Told told = read_hashed(*own.copies, {{address_of(content), content.size()}});
  CHECK_EQ(told.code, 0);
  CHECK(changes > 10);
  CHECK(told.fits());
  CHECK(told.digests.at(0) != before);
}

TEST(a_device_that_does_not_hash_any_more_leaves_it_to_the_host) {
  const std::vector<std::byte> content = noise(kPiece);
  const std::vector<MemoryRange> all = {{address_of(content), content.size()}};
  {
    Own own;  // no kernel
    CHECK_EQ(read_hashed(*own.copies, all).code, checkpoint::kNotOnDevice);
  }
  {
    Own own;
    driver().has_memory = false;
    own.copies->hash_by(digests());
    CHECK_EQ(read_hashed(*own.copies, all).code, checkpoint::kNotOnDevice);
  }
  Own own;
  own.copies->hash_by(digests());
  driver().launch_code = CUDA_ERROR_NOT_SUPPORTED;
  CHECK_EQ(read_hashed(*own.copies, all).code, CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(read_hashed(*own.copies, all).code, checkpoint::kNotOnDevice);
  std::vector<std::byte> got;
  const auto take = [&](const std::byte* piece, uint64_t bytes) {
    got.insert(got.end(), piece, piece + bytes);
  };
  CHECK_EQ(own.copies->read(checkpoint::only(all[0]), take), 0);
  CHECK(got == content);
}

TEST(memory_for_hashing_is_given_back_when_the_program_wants_it) {
  Own own;
  const auto kernel = digests();
  own.copies->hash_by(kernel);
  const std::vector<std::byte> content = noise(3 * kPiece);
  const std::vector<MemoryRange> all = {{address_of(content), content.size()}};
  CHECK(read_hashed(*own.copies, all).fits());
  CHECK(own.copies->make_room());
  CHECK(!kernel->staging(0) && !kernel->staging(1));
  CHECK(!own.copies->make_room());  // there is no more
  CHECK_EQ(read_hashed(*own.copies, all).code, checkpoint::kNotOnDevice);
  CHECK(own.copies->ready_beside());
  CHECK_EQ(own.read_beside(content), 0);
}

TEST(memory_through_which_copies_pass_is_not_given_back) {
  Own own(false, {kAtOnceNs, kAtOnceNs});
  const auto kernel = digests();
  own.copies->hash_by(kernel);
  const std::vector<std::byte> content = noise(100);
  driver().stands_still = true;
  CHECK_EQ(read_hashed(*own.copies, {{address_of(content), 100}}).code, PinnedRing::kLate);
  CHECK(!own.copies->make_room());
  CHECK(kernel->staging(0));
  driver().stands_still = false;
  do_all();
  CHECK(own.copies->make_room());
}

TEST(a_kernel_that_computes_something_else_is_not_used) {
  Own own;
  static const server::KernelImage image{0, nullptr, 0};
  driver().seed = kSeed;
  driver().lies = true;
  std::string why;
  CHECK(!server::DeviceDigests::make(table(), 0, kSeed, {&image, 1}, &why));
  CHECK_EQ(why, "its digest of known bytes is not theirs");
}

// Whatever travels meanwhile arrives while a piece is being taken.
TEST(a_piece_that_is_taken_is_not_overwritten_and_others_travel) {
  const Ring ring;
  const std::vector<std::byte> content = noise(9 * kPiece);
  uint64_t at = 0, most = 0;
  const auto take = [&](const std::byte* piece, uint64_t bytes) {
    const size_t queued = queued_copies();
    most = std::max<uint64_t>(most, queued);
    if (at + PinnedRing::kPieces * kPiece <= content.size()) CHECK(queued > 0);
    do_all();
    CHECK(!std::memcmp(piece, content.data() + at, bytes));
    at += bytes;
  };
  CHECK_EQ(ring.ring->read(checkpoint::only(MemoryRange{address_of(content), content.size()}), take,
                           kSoonNs),
           0);
  CHECK_EQ(at, content.size());
  CHECK_EQ(most, PinnedRing::kPieces - 1);
}

TEST(an_error_of_a_call_or_of_the_device_is_returned) {
  Ring ring;
  const std::vector<std::byte> content = noise(3 * kPiece);
  std::vector<std::byte> got, device(content.size());
  driver().copy_code = CUDA_ERROR_INVALID_VALUE;  // nothing is mapped there
  CHECK_EQ(ring.read(content, &got), 1);
  CHECK_EQ(ring.ring->write(only(device, content), kSoonNs), 1);
  driver().copy_code = 0;
  CHECK_EQ(ring.read(content, &got), 0);
  // One of many: what travels is not left behind.
  int asked = 0;
  const auto next = [&](checkpoint::MemoryRange* range) {
    if (++asked == 4) driver().copy_code = CUDA_ERROR_INVALID_VALUE;
    *range = {address_of(content), kPiece};
    return true;
  };
  CHECK_EQ(ring.ring->read(next, [](const std::byte*, uint64_t) {}, kSoonNs), 1);
  driver().copy_code = 0;
  CHECK_EQ(queued_copies(), 0u);
  CHECK_EQ(ring.read(content, &got), 0);
  CHECK(got == content);
  driver().on_copy = [] { driver().failure = CUDA_ERROR_ILLEGAL_ADDRESS; };
  CHECK_EQ(ring.read(content, &got), 700);
  CHECK_EQ(ring.read(content, &got), 700);
  CHECK_EQ(ring.ring->write(only(device, content), kSoonNs), 700);
  CHECK_EQ(ring.ring->rests(), 700);
}

TEST(a_piece_that_does_not_come_is_not_waited_for_twice) {
  Ring ring;
  const size_t locked = driver().locked.size();
  const std::vector<std::byte> content = noise(6 * kPiece);
  std::vector<std::byte> got;
  driver().stands_still = true;
  CHECK_EQ(ring.read(content, &got, kAtOnceNs), PinnedRing::kLate);
  const uint64_t began = ring::now_ns();
  CHECK_EQ(ring.read(content, &got, kSoonNs), PinnedRing::kLate);
  CHECK(ring::now_ns() - began < kSoonNs);
  CHECK(got.empty());
  driver().stands_still = false;
  do_all();
  CHECK_EQ(ring.read(content, &got), 0);
  CHECK(got == content);
  driver().stands_still = true;
  CHECK_EQ(ring.read(content, &got, kAtOnceNs), PinnedRing::kLate);
  ring.ring.reset();  // the device may still copy there
  CHECK_EQ(driver().locked.size(), locked);
  driver().stands_still = false;
  do_all();
}

TEST(pages_are_locked_once_and_given_back) {
  start_again();
  const size_t locked = driver().locked.size();
  {
    Own own;
    const std::vector<std::byte> content = noise(100);
    const auto none = [](const std::byte*, uint64_t) {};
    CHECK_EQ(driver().locks, 0u);  // not before they are needed
    CHECK_EQ(own.copies->read(checkpoint::only(MemoryRange{address_of(content), 100}), none), 0);
    CHECK_EQ(own.copies->read(checkpoint::only(MemoryRange{address_of(content), 100}), none), 0);
    CHECK_EQ(driver().locks, 1u);
    CHECK(own.copies->ready_beside());
    CHECK(own.copies->ready_beside());
    CHECK_EQ(driver().locks, 2u);
  }
  CHECK_EQ(driver().locked.size(), locked);
}

TEST(a_driver_that_locks_no_pages_copies_all_the_same_but_not_beside) {
  Own own;
  driver().locks_nothing = true;
  const std::vector<std::byte> content = noise(3 * kPiece + 1);
  std::vector<std::byte> got, device(content.size());
  const auto take = [&](const std::byte* piece, uint64_t bytes) {
    got.insert(got.end(), piece, piece + bytes);
  };
  CHECK_EQ(
      own.copies->read(checkpoint::only(MemoryRange{address_of(content), content.size()}), take),
      0);
  CHECK(got == content);
  CHECK_EQ(own.copies->write(only(device, content)), 0);
  CHECK(device == content);
  CHECK(!own.copies->ready_beside());
  CHECK(own.read_beside(content) != 0);
}

// The thread of background copies, and the one that dispatches and helps it.
TEST(two_threads_copy_at_once_and_disturb_no_capture) {
  for (const bool hashes : {true, false}) {
    Own own;
    if (hashes) own.copies->hash_by(digests());
    CHECK(own.copies->ready_beside());
    driver().captures = true;
    const uint64_t locks = driver().locks;
    const std::vector<std::byte> content = noise(24 * kPiece);
    const checkpoint::DigestKey key(kSeed, ring::DigestKind::kNh);
    std::vector<checkpoint::CopyJob> jobs;
    std::vector<std::byte> store(content.size());
    for (uint64_t at = 0, part = 0; at < content.size(); at += part) {
      part = std::min<uint64_t>(kPiece * 5 / 2, content.size() - at);
      jobs.push_back({address_of(content) + at, part, store.data() + at,
                      checkpoint::digest(content.data() + at, part, key)});
    }
    Beside beside(own);
    Last last;
    checkpoint::Copier copier(beside, key, last);
    for (int round = 0; round < 4; ++round) {
      std::ranges::fill(store, std::byte{0});
      last.outcome = {{{}}, -1, 0};
      const uint64_t hashed = checkpoint::host_hashed, copied = checkpoint::host_copied;
      copier.start(jobs);
      copier.finish();
      CHECK_EQ(last.outcome.changed.size(), 0u);
      CHECK_EQ(last.outcome.code, 0);
      CHECK(store == content);
      // What the device hashes the host passes over once.
      CHECK_EQ(checkpoint::host_copied - copied, content.size());
      CHECK_EQ(checkpoint::host_hashed - hashed, hashes ? 0 : content.size());
    }
    CHECK(!driver().broken);
    CHECK_EQ(driver().pageable, 0u);
    CHECK_EQ(driver().locks, locks);  // none while the program works
  }
}

// A device that several threads write by way of such copies.
struct Written : checkpoint::DeviceMemory {
  explicit Written(Own& own) : own(own) {}
  int read(const checkpoint::NextRange&, const checkpoint::TakePiece&) override { return 1; }
  int write(const checkpoint::NextContent& next) override { return own.copies->write(next); }
  unsigned threads() override { return ready = own.copies->prepare_writers(wanted); }
  void enter() override { own.session->enter_device(); }
  int digests(std::span<const MemoryRange> ranges, ring::Digest* out) override {
    for (const MemoryRange& range : ranges)
      *out++ = checkpoint::nh_digest(reinterpret_cast<const void*>(range.address), range.bytes, 5);
    return 0;
  }
  Own& own;
  unsigned wanted = 3, ready = 0;
};

TEST(threads_of_a_restore_have_pieces_of_their_own) {
  for (const bool locks : {true, false}) {
    Own own;
    driver().locks_nothing = !locks;
    const std::vector<std::byte> content = noise(30 * kPiece);
    std::vector<std::byte> device(content.size());
    std::vector<checkpoint::BlockContent> plan;
    for (uint64_t at = 0, part = 0; at < content.size(); at += part) {
      part = std::min<uint64_t>(at % 3 ? 7 * kPiece : 10'001, content.size() - at);
      plan.push_back(
          {{address_of(device) + at, part, checkpoint::nh_digest(content.data() + at, part, 5), 0},
           content.data() + at});
    }
    Written memory(own);
    checkpoint::MemoryWriter writer(memory, {5, ring::DigestKind::kNh});
    const auto outcome = writer.write(plan, [](const ring::ManifestBlock&) {});
    CHECK_EQ(outcome.code, 0);
    CHECK(outcome.wrong.empty());
    CHECK(device == content);
    CHECK_EQ(memory.ready, locks ? 3u : 1u);
    CHECK_EQ(driver().locks, locks ? 3u : 0u);
    CHECK_EQ(driver().pageable != 0, !locks);
  }
}

// Behind work that waits for another rank, say, which may wait for what comes after the gate.
TEST(copies_beside_the_programs_work_are_given_up_in_time) {
  Own own(false, {kSoonNs, kAtOnceNs});
  const std::vector<std::byte> content = noise(100);
  CHECK(own.copies->ready_beside());
  driver().stands_still = true;
  CHECK_EQ(own.read_beside(content), PinnedRing::kLate);
  CHECK_EQ(own.channel->control().sticky_error.load(), 0);
  driver().stands_still = false;
  do_all();
  CHECK(!own.copies->ready_beside());  // it would happen again
  CHECK_EQ(own.read_beside(content), PinnedRing::kLate);
  std::vector<std::byte> got;
  const auto take = [&](const std::byte* piece, uint64_t bytes) {
    got.insert(got.end(), piece, piece + bytes);
  };
  CHECK_EQ(
      own.copies->read(checkpoint::only(MemoryRange{address_of(content), content.size()}), take),
      0);
  CHECK(got == content);
}

TEST(a_device_that_fails_meanwhile_is_a_failed_device) {
  const std::vector<std::byte> content = noise(100);
  {
    Own own;
    CHECK(own.copies->ready_beside());
    driver().on_copy = [] { driver().failure = CUDA_ERROR_ILLEGAL_ADDRESS; };
    CHECK_EQ(own.read_beside(content), 700);
    CHECK_EQ(own.channel->control().sticky_error.load(), 700);
  }
  {
    Own own;  // nothing is mapped there (any more)
    CHECK(own.copies->ready_beside());
    driver().copy_code = CUDA_ERROR_INVALID_VALUE;
    CHECK_EQ(own.read_beside(content), 1);
    CHECK_EQ(own.channel->control().sticky_error.load(), 0);
  }
  Own own(true);
  CHECK(own.copies->ready_beside());
  driver().on_copy = [] { driver().failure = CUDA_ERROR_ILLEGAL_ADDRESS; };
  std::cout.flush();  // or the child says it as well
  if (fork() == 0) {
    own.read_beside(content);
    _exit(0);
  }
  int status = 0;
  wait(&status);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ring::kFaultExit);
  const ring::ControlPage& page = own.channel->control();
  CHECK_EQ(page.fault_kind.load(), static_cast<uint32_t>(ring::FaultKind::kDevice));
  CHECK_EQ(page.fault_code, 700);
  CHECK_EQ(std::string(page.fault_text), "a copy behind a cut reports error [700]");
}

CHECK_MAIN
