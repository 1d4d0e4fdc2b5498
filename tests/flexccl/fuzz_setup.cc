// Fuzzes what strangers and insiders can say before a link exists: hellos with and without the key,
// descriptors that come with them, and the messages of the rendezvous.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "flexccl.h"
#include "fuzz.h"
#include "rendezvous/rendezvous.h"
#include "transport/endpoint.h"
#include "transport/fifo.h"

namespace {

using flexccl::Fd;

// One communicator for all trials; strangers must not disturb it.
struct Bystanders {
  Bystanders() {
    flexcclSetTransport(flexcclLoopback);
    flexcclSetTimeout(10000);
    ncclUniqueId raw;
    FUZZ_CHECK(ncclGetUniqueId(&raw) == ncclSuccess);
    id = flexccl::parse_unique_id(raw);
    ncclGroupStart();
    for (int r = 0; r < 2; ++r) ncclCommInitRank(&comms[r], 2, raw, r);
    FUZZ_CHECK(ncclGroupEnd() == ncclSuccess);
    still_work();
  }
  void still_work() {
    int data[2] = {1, 2};
    ncclGroupStart();
    for (int r = 0; r < 2; ++r)
      ncclAllReduce(&data[r], &data[r], 1, ncclInt32, ncclSum, comms[r], nullptr);
    FUZZ_CHECK(ncclGroupEnd() == ncclSuccess);
    for (int r = 0; r < 2; ++r)
      FUZZ_CHECK(flexcclSynchronize(comms[r]) == ncclSuccess && data[r] == 3);
  }
  flexccl::UniqueId id;
  ncclComm_t comms[2];
};

// Sends as much as is taken and waits until the other side hangs up: a little for one that may
// have a reason not to.
void say(const Fd& socket, const Message& bytes, const std::vector<int>& fds, bool waits = true) {
  try {
    if (!bytes.empty()) flexccl::send_all(socket.get(), bytes.data(), bytes.size(), fds);
  } catch (const flexccl::Error&) {
  }
  shutdown(socket.get(), SHUT_WR);
  char answer[256];
  const auto deadline = flexccl::in_ms(50);
  while (waits && std::chrono::steady_clock::now() < deadline)
    if (const auto got = recv(socket.get(), answer, sizeof answer, MSG_DONTWAIT);
        got == 0 || (got < 0 && errno != EAGAIN))
      return;
    else if (got < 0)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void fuzz_hello(Random& random, Bystanders& there) {
  const flexccl::Address& to = flexccl::Endpoint::process().address();
  const bool unix_socket = random.once_in(2);
  const Fd socket = unix_socket ? flexccl::connect_unix(to.process)
                                : flexccl::connect_tcp(to.ipv4, to.port, flexccl::in_ms(5000));
  flexccl::Challenge challenge;
  flexccl::receive_all(socket.get(), &challenge, sizeof challenge, flexccl::in_ms(5000), "it");
  const flexccl::Key key = flexccl::job_key(there.id);
  // Slot 2 is no rank's: an insider's valid link must not take the place of a rank of the job.
  flexccl::Hello hello{flexccl::kMagic,
                       flexccl::kWireVersion,
                       flexccl::fingerprint(key),
                       there.id.comm,
                       0,
                       2,
                       unsigned(random.below(2)),
                       unix_socket ? flexccl::LinkKind::kShm : flexccl::LinkKind::kTcp,
                       {},
                       {}};
  Message bytes = message_of(hello);
  if (random.once_in(2)) {
    const auto text = value_of<flexccl::Hello>(bytes);
    scramble(random, &bytes, 3);
    hello = value_of<flexccl::Hello>(bytes);
    hello.source = std::max(2u, hello.source);  // it may say anything but be a rank of the job
    if (random.once_in(2)) hello.comm = text.comm, hello.key = text.key;
    hello.magic = text.magic, hello.version = text.version;
    hello.mac = flexccl::hello_mac(key, challenge, hello);
    bytes = message_of(hello);
  } else {
    hello.mac = flexccl::hello_mac(key, challenge, hello);
    bytes = message_of(hello);
    mutate(random, &bytes);
    if (bytes.size() >= sizeof hello && std::memcmp(bytes.data(), &hello, sizeof hello) == 0)
      bytes[0] ^= 1;
  }
  std::vector<Fd> made;
  std::vector<int> fds;
  for (std::size_t n = unix_socket && !bytes.empty() ? random.below(5) : 0; n; --n) {
    made.emplace_back(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::size_t sizes[] = {0, 4096, flexccl::kFifoMemoryBytes, random.below(1 << 22)};
    FUZZ_CHECK(ftruncate(made.back().get(), static_cast<off_t>(sizes[random.below(4)])) == 0);
    if (random.once_in(2)) fcntl(made.back().get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    fds.push_back(made.back().get());
  }
  say(socket, bytes, fds, !random.once_in(4));
}

// The port of a rendezvous answers no nonsense and still brings the rank together.
void fuzz_root(Random& random) {
  flexccl::UniqueId id = flexccl::make_unique_id(flexccl::RendezvousKind::kTcp, 10000);
  for (int caller = 0; caller < 3; ++caller) {
    const Fd socket = flexccl::connect_tcp(id.ipv4, id.port, flexccl::in_ms(5000));
    Message bytes(64);
    const std::uint32_t start[] = {flexccl::kMagic, flexccl::kWireVersion, 0, 1};
    std::memcpy(bytes.data(), start, sizeof start);
    mutate(random, &bytes);
    say(socket, bytes, {}, false);
  }
  const flexccl::Address& self = flexccl::Endpoint::process().address();
  const auto table = flexccl::meet(id, {0, 1, self}, flexccl::in_ms(10000));
  FUZZ_CHECK(table.size() == 1 && table[0].process == self.process);
}

// A false rendezvous can only make the meeting fail, with a sentence and in time.
void fuzz_meeting(Random& random) {
  flexccl::UniqueId id{};
  id.magic = flexccl::kMagic, id.version = flexccl::kWireVersion;
  id.kind = flexccl::RendezvousKind::kTcp, id.ipv4 = htonl(INADDR_LOOPBACK);
  const Fd listener = flexccl::listen_tcp(id.ipv4, &id.port);
  std::thread root([&, seed = random.next()] {
    Random mine(seed);
    Fd socket;
    for (int i = 0; i < 2000 && !socket; ++i) {
      socket = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    FUZZ_CHECK(bool(socket));
    Message bytes = message_of(flexccl::Challenge{flexccl::kMagic, flexccl::kWireVersion, {}});
    bytes.resize(bytes.size() + 128 + mine.below(3) * sizeof(flexccl::Address));
    std::memcpy(bytes.data() + sizeof(flexccl::Challenge), &flexccl::kMagic, 4);
    mutate(mine, &bytes);
    say(socket, bytes, {});
  });
  try {
    flexccl::meet(id, {0, 1 + int(random.below(3)), {}}, flexccl::in_ms(2000));
    FUZZ_CHECK(!"it met a stranger");
  } catch (const flexccl::Error& error) {
    FUZZ_CHECK(error.code == ncclRemoteError || error.code == ncclInvalidUsage);
  }
  root.join();
}

void fuzz_file(Random& random, const std::string& directory) {
  setenv("FLEXCCL_RENDEZVOUS", ("file:" + directory).c_str(), 1);
  const auto id = flexccl::make_unique_id(flexccl::RendezvousKind::kTcp, 1000);
  unsetenv("FLEXCCL_RENDEZVOUS");
  char folder[32];
  std::snprintf(folder, sizeof folder, "/flexccl-%016llx",
                static_cast<unsigned long long>(id.comm));
  Message record(72);
  const std::uint32_t start[] = {flexccl::kMagic, flexccl::kWireVersion, 1, 2};
  std::memcpy(record.data(), start, sizeof start);
  std::memcpy(record.data() + 16, &id.comm, sizeof id.comm);
  mutate(random, &record);
  std::ofstream(directory + folder + "/rank-1")
      .write(reinterpret_cast<const char*>(record.data()), static_cast<long>(record.size()));
  try {
    flexccl::meet(id, {0, 2, flexccl::Endpoint::process().address()}, flexccl::in_ms(2000));
    FUZZ_CHECK(!"it met a stranger");
  } catch (const flexccl::Error& error) {
    FUZZ_CHECK(error.code == ncclRemoteError);
  }
  for (const char* name : {"/rank-0", "/rank-1", ""}) remove((directory + folder + name).c_str());
}

void fuzz_id(Random& random) {
  ncclUniqueId raw;
  Message bytes = message_of(flexccl::UniqueId{flexccl::kMagic,
                                               flexccl::kWireVersion,
                                               flexccl::RendezvousKind::kFile,
                                               random.next(),
                                               {},
                                               0,
                                               0,
                                               {"/nowhere"}});
  scramble(random, &bytes);
  std::memcpy(&raw, bytes.data(), sizeof raw);
  try {
    const auto id = flexccl::parse_unique_id(raw);
    FUZZ_CHECK(std::memchr(id.directory, 0, sizeof id.directory));
  } catch (const flexccl::Error& error) {
    FUZZ_CHECK(error.code == ncclInvalidArgument);
  }
}

}  // namespace

int main(int argc, char** argv) {
  char directory[] = "/tmp/flexccl-fuzz-XXXXXX";
  FUZZ_CHECK(mkdtemp(directory));
  Bystanders bystanders;
  const int code = fuzz_main(argc, argv, [&](Random& random) {
    for (int i = 0; i < 8; ++i) fuzz_hello(random, bystanders);
    fuzz_meeting(random);
    fuzz_file(random, directory);
    for (int i = 0; i < 50; ++i) fuzz_id(random);
    if (random.once_in(8)) fuzz_root(random);  // it has a thread and a port of its own
    if (random.once_in(32)) bystanders.still_work();
  });
  bystanders.still_work();
  FUZZ_CHECK(rmdir(directory) == 0);
  return code;
}
