#include "transport/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/settings.h"
#include "transport/fault.h"
#include "transport/fifo.h"
#include "transport/tcp_link.h"

namespace flexccl {
namespace {

constexpr std::size_t kMaxCallers = 4096;  // more connections at once than this are refused
constexpr std::uint64_t kHelloMs = 5000;   // a caller has this long to say its hello
constexpr std::uint64_t kInboxMs = 60000;  // and waits this long for its communicator
constexpr std::size_t kMaxHelloFds = 2;    // memory and doorbell
constexpr std::size_t kEndedRemembered = 1024;
constexpr int kSweepMs = 20;
constexpr std::chrono::milliseconds kLook(20);

// Shared memory and the Unix socket work between processes of one boot and network namespace.
std::uint64_t host_id() {
  if (const char* name = settings::host())
    return keyed_hash64(Key{}, std::as_bytes(std::span(name, std::strlen(name))));
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space{};
  stat("/proc/self/ns/net", &space);
  boot += ' ' + std::to_string(space.st_ino);
  return keyed_hash64(Key{}, std::as_bytes(std::span(boot)));
}

std::uint32_t own_ipv4() {
  const char* text = settings::address();
  in_addr address{};
  if (inet_pton(AF_INET, text, &address) != 1)
    fail(ncclInvalidArgument, "flexccl: FLEXCCL_ADDRESS is [", text, "], not an IPv4 address");
  return address.s_addr;
}

}  // namespace

Bytes16 hello_mac(const Key& key, const Challenge& challenge, const Hello& hello) {
  std::byte text[sizeof challenge.nonce + offsetof(Hello, mac)];
  std::memcpy(text, &challenge.nonce, sizeof challenge.nonce);
  std::memcpy(text + sizeof challenge.nonce, &hello, offsetof(Hello, mac));
  return keyed_hash(key, text);
}

Bytes16 welcome_mac(const Key& key, const Hello& hello) {
  return keyed_hash(key, bytes_of(hello.mac));
}

Hello hello_for(int socket, const LinkRequest& request, LinkKind kind) {
  Challenge challenge;
  receive_all(socket, &challenge, sizeof challenge, {request.deadline, request.look},
              "its challenge");
  if (challenge.magic != kMagic || challenge.version != kWireVersion)
    fail(ncclRemoteError, "it speaks version [", challenge.version, "] of the protocol, not [",
         kWireVersion, "]");
  Hello hello{.magic = kMagic,
              .version = kWireVersion,
              .key = fingerprint(request.key),
              .comm = request.inbox.comm,
              .epoch = request.inbox.epoch,
              .source = request.source,
              .destination = request.inbox.destination,
              .kind = kind,
              .nonce = random_bytes16(),
              .mac = {}};
  hello.mac = hello_mac(request.key, challenge, hello);
  return hello;
}

Endpoint& Endpoint::process() {
  read_faults_from_environment();
  static Endpoint* const endpoint = std::unique_ptr<Endpoint>(new Endpoint).release();
  return *endpoint;
}

Endpoint::Endpoint() {
  address_ = {.process = random_bytes16(), .host = host_id(), .ipv4 = own_ipv4()};
  tcp_ = Acceptor(listen_tcp(address_.ipv4, &address_.port), false);
  unix_ = Acceptor(listen_unix(address_.process), true);
  std::thread([this] { serve(); }).detach();
}

void Endpoint::learn_key(const Key& key) {
  const std::scoped_lock lock(mutex_);
  keys_.try_emplace(fingerprint(key), key);
}

void Endpoint::add(const InboxName& name, std::shared_ptr<Inbox> inbox) {
  const std::scoped_lock lock(mutex_);
  if (!inboxes_.try_emplace(name, std::move(inbox)).second)
    fail(ncclInvalidUsage, "flexccl: rank [", name.destination, "] of communicator [", std::hex,
         name.comm, "] exists already in this process");
  inboxes_changed_.notify_all();
}

void Endpoint::remove(const InboxName& name, const std::shared_ptr<Inbox>& inbox) {
  const std::scoped_lock lock(mutex_);
  const auto found = inboxes_.find(name);
  if (found == inboxes_.end() || found->second != inbox) return;
  inboxes_.erase(found);
  ended_.push_back(name);
  if (ended_.size() > kEndedRemembered) ended_.pop_front();
  inboxes_changed_.notify_all();
}

std::shared_ptr<Inbox> Endpoint::find(const InboxName& name) {
  const std::scoped_lock lock(mutex_);
  const auto found = inboxes_.find(name);
  return found == inboxes_.end() ? nullptr : found->second;
}

bool Endpoint::has_ended(const InboxName& name) const {
  return !inboxes_.contains(name) && std::find(ended_.begin(), ended_.end(), name) != ended_.end();
}

void Endpoint::serve() {
  for (;;) {
    const bool room = has_room();  // else those that knock wait in the listeners' queues
    std::vector<pollfd> looks{{room ? tcp_.fd() : -1, POLLIN, 0},
                              {room ? unix_.fd() : -1, POLLIN, 0}};
    bool waiting = false;
    for (const Caller& caller : callers_) {
      waiting |= caller.greeted;
      // One that waits for its communicator says nothing more; it can only hang up.
      looks.push_back({caller.socket.get(), short(caller.greeted ? POLLRDHUP : POLLIN), 0});
    }
    // Callers whose communicator is not there yet are looked at again soon; nothing else is slow.
    poll(looks.data(), looks.size(), waiting ? 1 : kSweepMs * (callers_.empty() ? 50 : 1));
    auto look = looks.begin() + 2;
    callers_.remove_if(
        [&look](const Caller& caller) { return (look++)->revents && caller.greeted; });
    accept_all(unix_);  // first: other users have no say there, and may flood the other one
    accept_all(tcp_);
    callers_.remove_if([this](Caller& caller) { return !advance(caller); });
  }
}

bool Endpoint::has_room() const {
  const auto silent = [](const Caller& caller) { return !caller.greeted; };
  if (std::cmp_less(std::count_if(callers_.begin(), callers_.end(), silent), most_silent()))
    return true;
  const auto oldest = std::find_if(callers_.begin(), callers_.end(), silent);
  return in_ms(kHelloMs) - oldest->deadline > kSilentGrace;
}

void Endpoint::make_room() {
  const auto silent = [](const Caller& caller) { return !caller.greeted; };
  if (std::cmp_less(std::count_if(callers_.begin(), callers_.end(), silent), most_silent())) return;
  callers_.erase(std::find_if(callers_.begin(), callers_.end(), silent));
  ++refused_;
}

void Endpoint::accept_all(Acceptor& listener) {
  while (has_room()) {
    Fd socket = listener.next();
    if (!socket) return;
    make_room();
    if (callers_.size() >= kMaxCallers) {
      ++refused_;
      continue;
    }
    Caller caller{.challenge = {kMagic, kWireVersion, random_bytes16()}, .hello = {}, .fds = {}};
    caller.deadline = in_ms(kHelloMs);
    if (send(socket.get(), &caller.challenge, sizeof caller.challenge, MSG_NOSIGNAL) !=
        sizeof caller.challenge)
      continue;
    caller.socket = std::move(socket);
    callers_.push_back(std::move(caller));
  }
}

bool Endpoint::advance(Caller& caller) {
  if (!caller.greeted) {
    auto* to = reinterpret_cast<char*>(&caller.hello) + caller.received;
    const long got =
        receive_some(caller.socket.get(), to, sizeof caller.hello - caller.received, &caller.fds);
    if (got > 0) caller.received += static_cast<std::size_t>(got);
    // Descriptors that no rank asked for would use up this process's own.
    if (caller.fds.size() > kMaxHelloFds) return ++refused_, false;
    const bool over = got == 0 || std::chrono::steady_clock::now() > caller.deadline;
    if (caller.received < sizeof caller.hello) return over ? (++refused_, false) : true;
    if (!authentic(caller)) return ++refused_, false;
    caller.greeted = true;
    caller.deadline = in_ms(kInboxMs);
  }
  std::unique_lock lock(mutex_);
  const Hello& hello = caller.hello;
  const InboxName name{hello.comm, hello.epoch, hello.destination};
  if (has_ended(name)) return false;
  auto inbox = inboxes_.find(name);
  // A rank of one communicator of this process has no say in another one.
  if (inbox != inboxes_.end() && hello.key != inbox->second->key()) return ++refused_, false;
  if (hello.kind == LinkKind::kControl) {
    const auto responder = inbox == inboxes_.end() ? nullptr : inbox->second->responder();
    const Key key = keys_.at(hello.key);
    lock.unlock();
    if (!responder || !answer(std::move(caller.socket), key, hello, responder)) ++refused_;
    return false;
  }
  if (inbox == inboxes_.end()) return std::chrono::steady_clock::now() < caller.deadline;
  if (hello.epoch > inbox->second->epoch() && inbox->second->responder()) {
    // The step may be known here and not taken yet. That may end links, which takes no time here.
    const auto responder = inbox->second->responder();
    lock.unlock();
    responder->look();
    lock.lock();
    if ((inbox = inboxes_.find(name)) == inboxes_.end()) return false;
  }
  if (hello.epoch < inbox->second->epoch()) return ++refused_, false;
  try {
    if (hello.epoch > inbox->second->epoch()) {
      const Welcome later{kMagic, kComeAgain, {}};
      send_all(caller.socket.get(), &later, sizeof later);
      return false;
    }
    if (!deliver(caller)) ++refused_;
  } catch (const Error&) {
    ++refused_;
  }
  return false;
}

bool Endpoint::authentic(const Caller& caller) {
  const Hello& hello = caller.hello;
  if (hello.magic != kMagic || hello.version != kWireVersion) return false;
  const std::scoped_lock lock(mutex_);
  const auto key = keys_.find(hello.key);
  return key != keys_.end() &&
         equal_macs(hello_mac(key->second, caller.challenge, hello), hello.mac);
}

bool Endpoint::deliver(Caller& caller) {
  const Hello hello = caller.hello;
  const auto inbox = inboxes_.at({hello.comm, hello.epoch, hello.destination});
  const Welcome welcome{kMagic, kWireVersion, welcome_mac(keys_.at(hello.key), hello)};
  // The inbox owns the link, and may end it, before the other side is told that it has one: a
  // welcome to a link that a repair has refused would be worse.
  const Fd socket(fcntl(caller.socket.get(), F_DUPFD_CLOEXEC, 0));
  const int bell = inbox->doorbell().fd();
  auto link =
      with_faults(inbound(caller), {hello.comm, hello.epoch, hello.destination, hello.source});
  if (!inbox->add(hello.source, std::move(link), hello.epoch)) return false;
  const std::span<const int> fds(&bell, hello.kind == LinkKind::kShm ? 1 : 0);
  send_all(socket.get(), &welcome, sizeof welcome, fds);
  return true;
}

std::unique_ptr<Inbound> Endpoint::inbound(Caller& caller) {
  if (caller.hello.kind == LinkKind::kTcp)
    return std::make_unique<TcpInbound>(std::move(caller.socket));
  if (caller.hello.kind != LinkKind::kShm || caller.fds.size() != 2)
    fail(ncclRemoteError, "flexccl: [", caller.fds.size(), "] descriptors came with a hello");
  auto memory = Memory::adopt(std::move(caller.fds[0]), kFifoMemoryBytes);
  Doorbell writer(Memory::adopt(std::move(caller.fds[1]), Doorbell::kBytes));
  return std::make_unique<FifoInbound>(std::move(memory), std::move(writer),
                                       std::move(caller.socket));
}

std::unique_ptr<Outbound> Endpoint::connect_loopback(const LinkRequest& request,
                                                     const Doorbell& own) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return inboxes_.contains(request.inbox) || has_ended(request.inbox); };
  while (!inboxes_changed_.wait_for(lock, kLook, there)) {
    if (request.look) request.look();
    if (std::chrono::steady_clock::now() > request.deadline)
      fail(ncclRemoteError, "it did not make its end of communicator [", std::hex,
           request.inbox.comm, "] in time");
  }
  if (has_ended(request.inbox)) fail(ncclRemoteError, "its communicator is gone");
  const auto inbox = inboxes_.at(request.inbox);
  if (inbox->epoch() < request.inbox.epoch && inbox->responder()) {
    lock.unlock();
    inbox->responder()->look();
    lock.lock();
  }
  if (inbox->epoch() < request.inbox.epoch) fail(ncclInProgress, "it has not reached the epoch");
  if (inbox->epoch() > request.inbox.epoch) fail(ncclRemoteError, "it is in a later epoch");
  auto memory = Memory::create(kFifoMemoryBytes);
  auto inbound = with_faults(
      std::make_unique<FifoInbound>(memory, own, Fd()),
      {request.inbox.comm, request.inbox.epoch, request.inbox.destination, request.source});
  if (!inbox->add(request.source, std::move(inbound), request.inbox.epoch))
    fail(ncclRemoteError, "there is a link already");
  return std::make_unique<FifoOutbound>(std::move(memory), inbox->doorbell(), Fd());
}

std::unique_ptr<Connection> Endpoint::connect(const Address& to, const LinkRequest& request,
                                              const Doorbell& own) {
  const InboxName& there = request.inbox;
  const LinkName name{there.comm, there.epoch, request.source, there.destination};
  auto transport = request.transport;
  if (transport == flexcclAuto)
    transport = to.process == address_.process ? flexcclLoopback
                : to.host == address_.host     ? flexcclShm
                                               : flexcclTcp;
  if (transport == flexcclLoopback)
    return std::make_unique<Connection>(connect_loopback(request, own), name);
  const WaitUntil wait(request.deadline, request.look);
  const bool shm = transport == flexcclShm;
  Fd socket = shm ? connect_unix(to.process, wait) : connect_tcp(to.ipv4, to.port, wait);
  auto memory = shm ? Memory::create(kFifoMemoryBytes) : nullptr;
  const int fds[] = {memory ? memory->fd() : -1, own.fd()};
  const Hello hello = hello_for(socket.get(), request, shm ? LinkKind::kShm : LinkKind::kTcp);
  send_all(socket.get(), &hello, sizeof hello, std::span(fds, shm ? 2 : 0), request.deadline);
  return std::make_unique<Connection>(std::move(socket), std::move(memory), request.key, hello,
                                      name, request.deadline);
}

}  // namespace flexccl
