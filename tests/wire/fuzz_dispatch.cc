// Fuzzes what the server does with entries: from entries of real jobs, changed at random, to the
// handlers directly (bodies of exact size: the address sanitizer sees a byte too far) and through
// the server's loop from a ring. The server may refuse and end, with a sentence; nothing else.
//
//     fuzz_dispatch SECONDS SEED CORPUS
#include <sys/mman.h>

#include <set>

#include "api/call_ids.h"
#include "api/object_types.h"
#include "api/printer.h"
#include "fake_device.h"
#include "fuzz_backend.h"
#include "server/handlers/library.h"
#include "server/loop.h"
#include "wire/corpus.h"

namespace {

using namespace pyft;  // NOLINT: a test

constexpr uint64_t kArea = 1 << 16;

struct Ending : ring::Liveness {
  ring::WaitStatus check() const override { return ring::WaitStatus::kEnding; }
};

// Functions the device runs when its stream gets there: at once, later, or never.
struct Device {
  std::vector<std::pair<void (*)(void*), void*>> later;
  Random& random;

  int publish(void (*function)(void*), void* data) {
    if (fuzz_backend::fails()) return CUDA_ERROR_LAUNCH_FAILED;
    if (random.once_in(2))
      function(data);
    else
      later.push_back({function, data});
    return 0;
  }
  void run() {
    for (const auto& [function, data] : later)
      if (random.once_in(2)) function(data);
    later.clear();
  }
};

// The memory of a channel, as the server maps it (with the pinned window) and as a client does.
struct Memory {
  Memory() {
    std::string error;
    ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = kArea;
    client = ring::Channel::create(shape, &error);
    FUZZ_CHECK(client);
    ring::ChannelFds fds = client->dup_fds();
    ring::ChannelSizes sizes = client->sizes();
    sizes.pinned = kArea;
    fds.pinned.reset(memfd_create("fuzz", MFD_CLOEXEC));
    FUZZ_CHECK(ftruncate(fds.pinned.get(), kArea) == 0);
    server = ring::Channel::map(ring::Role::kServer, 0, std::move(fds), sizes, &error);
    if (!server) dprintf(STDERR_FILENO, "fuzz: no server side: %s\n", error.c_str());
    FUZZ_CHECK(server);
  }
  std::unique_ptr<ring::Channel> client, server;
};

// Handles and addresses in the corpus: what makes a changed entry still mean something.
struct Dictionary {
  std::vector<Handle> handles;
  std::vector<uint64_t> words;

  explicit Dictionary(const std::vector<Seed>& corpus) {
    for (uint64_t kind = 1; kind <= static_cast<uint64_t>(HandleKind::kCommunicator); ++kind)
      handles.push_back(Handle::make(static_cast<HandleKind>(kind), 3, 1));
    for (const Seed& seed : corpus)
      for (size_t at = 0; at + 8 <= seed.body.size(); at += 8) add(seed.body, at);
    for (const Handle handle : handles) words.push_back(handle.value);
    for (uint8_t type = 0; type < std::size(kObjectTypeNames); ++type)
      words.push_back(ObjectId::make(type, 3).value);
    for (const uint64_t word : {ring::kDeviceWindowBase, ring::kPinnedWindowBase,
                                ring::kDeviceWindowBase + ring::kDeviceWindowBytes - 8,
                                ring::kPinnedWindowBase + kArea - 8, uint64_t{2} << 20, kArea})
      words.push_back(word);
  }
  void add(const Message& body, size_t at) {
    Handle handle;
    std::memcpy(&handle, body.data() + at, sizeof handle);
    const uint8_t kind = static_cast<uint8_t>(handle.kind());
    const bool is_handle = kind && kind <= static_cast<uint8_t>(HandleKind::kCommunicator) &&
                           handle.index() && handle.index() < (1u << 16);
    if (is_handle && std::find(handles.begin(), handles.end(), handle) == handles.end())
      handles.push_back(handle);
    if (handle.value - ring::kDeviceWindowBase < ring::kDeviceWindowBytes && words.size() < 50)
      words.push_back(handle.value);
  }
};

struct Fuzzer {
  explicit Fuzzer(const char* corpus_path) : corpus(read_corpus(corpus_path)), dictionary(corpus) {}

  void trial(Random& random);
  void change(Random& random, Seed* seed);
  void fill_ring(Random& random);
  void dispatch_entries(Random& random, server::Session& session);
  void run_loop(Random& random, server::Session& session);

  std::vector<Seed> corpus;
  Dictionary dictionary;
  Memory memory;
  Ending liveness;
  uint64_t entries = 0, refusals = 0;
  std::set<uint16_t> accepted;  // calls that were carried out
};

void check_sentence(const std::string& text) {
  FUZZ_CHECK(text.size() >= 10 && text.size() < 400);
  for (const char c : text) FUZZ_CHECK(c >= ' ' && c <= '~');
}

void Fuzzer::change(Random& random, Seed* seed) {
  for (size_t n = random.below(3); n && seed->body.size() >= 8; --n) {
    const size_t words = seed->body.size() / (random.once_in(2) ? 8 : 4);
    const size_t step = seed->body.size() / words;
    const uint64_t value = random.once_in(3)
                               ? random.interesting()
                               : dictionary.words[random.below(dictionary.words.size())];
    std::memcpy(seed->body.data() + random.below(words) * step, &value, std::min<size_t>(step, 8));
  }
  if (random.once_in(4)) mutate(random, &seed->body);
  if (random.once_in(4)) mutate(random, &seed->payload);
  if (random.once_in(8)) seed->payload.clear();
  seed->body.resize((seed->body.size() + 15) / 16 * 16);
  if (random.once_in(4))
    seed->header.call = static_cast<uint16_t>(
        random.once_in(4) ? random.next() : ring::kFirstCall + random.below(1200));
  if (random.once_in(8)) seed->header.flags ^= static_cast<uint16_t>(1u << random.below(5));
}

void Fuzzer::dispatch_entries(Random& random, server::Session& session) {
  for (uint64_t seq = 1; seq < 60; ++seq) {
    Seed seed = corpus[random.below(corpus.size())];
    if (random.once_in(2)) change(random, &seed);
    ring::EntryHeader& header = seed.header;
    header.seq = seq;
    header.reply_slot = header.flags & ring::kWantsReply
                            ? static_cast<uint32_t>(random.below(ring::kReplySlots))
                            : ring::kNoSlot;
    const Message body(seed.body), payload(seed.payload);  // nothing reserved behind them
    FUZZ_CHECK(!print_entry(header, bytes_of(body), random.once_in(2)).empty());
    if (header.call < ring::kFirstCall) continue;  // marks are the loop's
    ++entries;
    const server::Status status =
        server::dispatch(session, header, bytes_of(body), bytes_of(payload));
    if (status.ok()) {
      accepted.insert(header.call);
      continue;
    }
    // A server ends here. This one goes on, to get deeper: nothing may rely on the end either.
    ++refusals;
    check_sentence(status.text);
  }
}

// Lays entries into the ring as a client would, some of them or the memory around them changed.
void Fuzzer::fill_ring(Random& random) {
  ring::LogHeader& log = memory.client->log();
  uint64_t position = 0, payload_position = 0, seq = 1;
  const size_t count = random.below(40);
  for (size_t i = 0; i <= count; ++i) {
    Seed seed = corpus[random.below(corpus.size())];
    if (i == count) {
      seed = {};
      seed.header.call = static_cast<uint16_t>(ring::Mark::kGoodbye);
    } else if (random.once_in(4)) {
      change(random, &seed);
    }
    ring::EntryHeader& header = seed.header;
    header.size = static_cast<uint32_t>(sizeof header + seed.body.size());
    if (position + header.size > kArea || payload_position + seed.payload.size() > kArea) break;
    header.seq = seq++;
    header.reply_slot = header.flags & ring::kWantsReply ? 1 : ring::kNoSlot;
    header.flags &= static_cast<uint16_t>(~ring::kHasPayload);
    if (!seed.payload.empty()) header.flags |= ring::kHasPayload;
    header.payload_position = payload_position;
    header.payload_bytes = seed.payload.size();
    std::memcpy(memory.client->ring() + position, &header, sizeof header);
    std::copy_n(bytes_of(seed.body).data(), seed.body.size(),
                memory.client->ring() + position + sizeof header);
    std::copy_n(bytes_of(seed.payload).data(), seed.payload.size(),
                memory.client->arena() + payload_position);
    position += header.size;
    payload_position += seed.payload.size();
  }
  if (random.once_in(2)) {
    Message bytes(position);
    std::memcpy(bytes.data(), memory.client->ring(), position);
    scramble(random, &bytes);
    std::memcpy(memory.client->ring(), bytes.data(), position);
  }
  log.appended = position;
  log.arena_head = payload_position;
}

void Fuzzer::run_loop(Random& random, server::Session& session) {
  fill_ring(random);
  memory.server->control().consumed = 0;
  server::Loop loop(session, server::dispatch);
  const server::Loop::End end = loop.run();
  FUZZ_CHECK(loop.error().empty() == (end != server::Loop::End::kProtocolError));
  if (loop.error().empty()) return;
  ++refusals;
  check_sentence(loop.error());
  for (const ring::EntryHeader& header : loop.last_entries())
    FUZZ_CHECK(!print_entry(header, {}).empty());
}

void Fuzzer::trial(Random& random) {
  fuzz_backend::luck() = Random(random.next());
  backend::mock::calls().take();
  memory.server->control().sticky_error = 0;
  // Answers of trials before this one: one that this trial contradicts would end the process.
  for (uint32_t slot = 0; slot < ring::kReplySlots; ++slot) memory.server->slot(slot).done_seq = 0;
  Device device{{}, random};
  FakeDevice calls;
  calls.on_publish = [&](void (*function)(void*), void* data) {
    return device.publish(function, data);
  };
  calls.on_status = [&] {
    return random.once_in(8) ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_NOT_READY;
  };
  server::Session session(*memory.server, &fuzz_backend::table(), liveness, calls);
  for (const Handle handle : dictionary.handles)
    if (!random.once_in(4))
      session.table(handle.kind()).bind(handle, fuzz_backend::new_object<void*>());
  for (uint8_t type = 1; type < std::size(kObjectTypeNames); ++type)
    if (!random.once_in(4))
      server::keep_object(session, ObjectId::make(type, 3).value, static_cast<ObjectType>(type),
                          fuzz_backend::new_object<void*>());
  // A loop that is not told goodbye sleeps once, which costs more than all the rest.
  if (random.once_in(8))
    run_loop(random, session);
  else
    dispatch_entries(random, session);
  session.sweep();
  session.sweep_fences();
  device.run();
}

}  // namespace

int main(int argc, char** argv) {
  FUZZ_CHECK(argc == 4);
  stderr = std::fopen("/dev/null", "w");  // what handlers say about failed calls
  Fuzzer fuzzer(argv[3]);
  const int code = fuzz_main(argc, argv, [&](Random& random) { fuzzer.trial(random); });
  std::printf("fuzz: [%llu] entries dispatched, [%llu] refusals, [%zu] calls carried out\n",
              static_cast<unsigned long long>(fuzzer.entries),
              static_cast<unsigned long long>(fuzzer.refusals), fuzzer.accepted.size());
  // Almost all calls are; a table or a corpus that keeps them from it must not go unseen.
  FUZZ_CHECK(fuzzer.entries < 100000 || fuzzer.accepted.size() > 150);
  return code;
}
