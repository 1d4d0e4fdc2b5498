// Fuzzes what the server does with entries: from seeds of every command (seeds.cc, made from the
// records) and entries of real jobs, changed at random, to the handlers directly (bodies of exact
// size: the address sanitizer sees a byte too far) and through the server's loop from a ring. The
// server may refuse and end, with a sentence; nothing else.
//
// First each command is dispatched once, undisturbed: what is refused then is fuzzed no deeper than
// to that refusal, so almost all have to be carried out.
//
// It ends after a number of entries, so what it has to reach does not depend on the machine's
// speed.
//
//     fuzz_dispatch ENTRIES SEED CORPUS
#include <set>

#include "api/printer.h"
#include "backend/cupti.h"
#include "server/loop.h"
#include "wire/fuzz_world.h"

// CUPTI that sees no work: what becomes of records is tested in profile_test.cc.
const std::string& pyft::backend::load_cupti(const char*, Cupti* out) {
  static const std::string there;
  out->register_callbacks = [](auto...) { return CUPTI_SUCCESS; };
  out->enable = out->disable = [](CUpti_ActivityKind) { return CUPTI_SUCCESS; };
  out->push_id = [](auto...) { return CUPTI_SUCCESS; };
  out->pop_id = [](auto...) { return CUPTI_SUCCESS; };
  out->flush_all = [](uint32_t) { return CUPTI_SUCCESS; };
  out->dropped = [](CUcontext, uint32_t, size_t* records) {
    *records = 1;
    return CUPTI_SUCCESS;
  };
  return there;
}

namespace {

using namespace pyft;  // NOLINT: a test

constexpr size_t kLeastPercent = 95;  // of the commands: so many are carried out
constexpr size_t kEntriesEach = 150;  // of each command, on average: then the trials reach as many

struct Fuzzer {
  explicit Fuzzer(const char* corpus_path) : corpus(read_corpus(corpus_path)), dictionary(corpus) {}

  void dispatch_each_once();
  void dispatch_each_without_its_library();
  struct Outcome {
    std::string refusal;  // empty: the server goes on
    bool answered;
    int code;
  };
  Outcome outcome_of(server::Session& session, Seed seed, uint64_t seq);
  bool is_carried_out(server::Session& session, const Seed& seed, uint64_t seq);
  const Seed* before(const Seed& seed) const;
  void trial(Random& random);
  const Seed& pick(Random& random) const;
  void change(Random& random, Seed* seed);
  void fill_ring(Random& random);
  void dispatch_entries(Random& random, server::Session& session);
  void dispatch_entry(Random& random, server::Session& session, Seed seed, uint64_t seq);
  void run_loop(Random& random, server::Session& session);

  std::vector<Seed> corpus, seeds = pyft::seeds();
  Dictionary dictionary;
  Memory memory;
  Ending liveness;
  uint64_t entries = 0, refusals = 0;
  std::set<uint16_t> accepted;  // calls that were carried out
};

size_t known_calls() {
  size_t count = 0;
  for (uint32_t call = ring::kFirstCall; call <= UINT16_MAX; ++call)
    count += call_name(static_cast<uint16_t>(call)) != nullptr;
  return count;
}

void check_share(const char* how, const std::set<uint16_t>& carried_out) {
  std::printf("fuzz: [%zu] of [%zu] calls carried out %s\n", carried_out.size(), known_calls(),
              how);
  std::fflush(stdout);
  FUZZ_CHECK(carried_out.size() * 100 >= kLeastPercent * known_calls());
}

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
  if (random.once_in(8)) seed->header.flags ^= static_cast<uint16_t>(1u << random.below(7));
}

const Seed& Fuzzer::pick(Random& random) const {
  const std::vector<Seed>& from = random.once_in(4) ? corpus : seeds;
  return from[random.below(from.size())];
}

void Fuzzer::dispatch_entries(Random& random, server::Session& session) {
  for (uint64_t seq = 1; seq < 60; ++seq) {
    Seed seed = pick(random);
    const Seed* const first = random.once_in(2) ? before(seed) : nullptr;
    if (first) dispatch_entry(random, session, *first, seq++);
    if (random.once_in(2)) change(random, &seed);
    dispatch_entry(random, session, std::move(seed), seq);
  }
}

void Fuzzer::dispatch_entry(Random& random, server::Session& session, Seed seed, uint64_t seq) {
  ring::EntryHeader& header = seed.header;
  header.seq = seq;
  header.reply_slot = header.flags & ring::kWantsReply
                          ? static_cast<uint32_t>(random.below(ring::kReplySlots))
                          : ring::kNoSlot;
  const Message body(seed.body), payload(seed.payload);  // nothing reserved behind them
  FUZZ_CHECK(!print_entry(header, bytes_of(body), random.once_in(2)).empty());
  if (header.call < ring::kFirstCall) return;  // marks are the loop's
  ++entries;
  const server::Status status =
      server::dispatch(session, header, bytes_of(body), bytes_of(payload));
  if (status.ok()) {
    accepted.insert(header.call);
    return;
  }
  // A server ends here. This one goes on, to get deeper: nothing may rely on the end either.
  ++refusals;
  check_sentence(status.text);
}

// Lays entries into the ring as a client would, some of them or the memory around them changed.
void Fuzzer::fill_ring(Random& random) {
  ring::LogHeader& log = memory.client->log();
  uint64_t position = 0, payload_position = 0, seq = 1;
  const size_t count = random.below(40);
  for (size_t i = 0; i <= count; ++i) {
    Seed seed = pick(random);
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

// What becomes of one entry whose answer is waited for. Few never answer: code 0.
Fuzzer::Outcome Fuzzer::outcome_of(server::Session& session, Seed seed, uint64_t seq) {
  seed.header.seq = seq;
  seed.header.flags |= ring::kWantsReply;
  seed.header.reply_slot = 0;
  const ring::ReplySlot& slot = memory.server->slot(0);
  server::Status status =
      server::dispatch(session, seed.header, bytes_of(seed.body), bytes_of(seed.payload));
  const bool answered = slot.done_seq == seq;
  return {std::move(status.text), answered, answered ? slot.code : 0};
}

// The server goes on, and a thread that waits is told that all is well.
bool Fuzzer::is_carried_out(server::Session& session, const Seed& seed, uint64_t seq) {
  const Outcome outcome = outcome_of(session, seed, seq);
  if (outcome.refusal.empty() && outcome.code == 0) return true;
  std::printf("fuzz: [%s] is not carried out: code [%d] %s\n", call_name(seed.header.call),
              outcome.code, outcome.refusal.c_str());
  return false;
}

// The command that it needs before it, if it does.
const Seed* Fuzzer::before(const Seed& seed) const {
  for (const auto& [call, first] : kSeedsBefore)
    for (const Seed& each : seeds)
      if (static_cast<uint16_t>(call) == seed.header.call &&
          static_cast<uint16_t>(first) == each.header.call)
        return &each;
  return nullptr;
}

void Fuzzer::dispatch_each_once() {
  fuzz_backend::calm() = true;
  std::set<uint16_t> carried_out;
  for (const Seed& seed : seeds) {
    FakeDevice calls;
    server::Session session(*memory.server, &fuzz_backend::table(), liveness, calls);
    bind_objects(dictionary, session, [] { return true; });
    memory.server->slot(0).done_seq = 0;
    if (const Seed* const first = before(seed)) FUZZ_CHECK(is_carried_out(session, *first, 1));
    if (is_carried_out(session, seed, 2)) carried_out.insert(seed.header.call);
  }
  fuzz_backend::calm() = false;
  check_share("undisturbed", carried_out);
}

// A library may be older than the records, or not be there: only driver and runtime have to be.
// A program that asks for a function that it lacks is told so.
void Fuzzer::dispatch_each_without_its_library() {
  using backend::Library;
  size_t calls = 0, lacking = 0;
  for (const Seed& seed : seeds) {
    backend::Table table = fuzz_backend::table();
    Library of = Library::cuda;
    backend::for_each_function(table, [&](const char* name, Library library, void** slot) {
      if (std::string_view(name) != call_name(seed.header.call)) return;
      of = library;
      *slot = nullptr;
    });
    if (of == Library::cuda || of == Library::cudart) continue;
    ++calls;
    FakeDevice calls;
    server::Session session(*memory.server, &table, liveness, calls);
    bind_objects(dictionary, session, [] { return true; });
    memory.server->slot(0).done_seq = 0;
    const Outcome outcome = outcome_of(session, seed, 1);
    if (!outcome.refusal.empty() || (outcome.answered && outcome.code == 0))
      std::printf("fuzz: [%s] without its function: %s\n", call_name(seed.header.call),
                  outcome.refusal.c_str());
    else
      ++lacking;
  }
  std::fflush(stdout);
  FUZZ_CHECK(calls > 500 && lacking == calls);
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
  bind_objects(dictionary, session, [&] { return !random.once_in(4); });
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
  fuzzer.dispatch_each_once();
  fuzzer.dispatch_each_without_its_library();
  const uint64_t wanted = std::strtoull(argv[1], nullptr, 0);
  // Fewer would show nothing; 0 repeats one trial.
  FUZZ_CHECK(wanted == 0 || wanted >= kEntriesEach * known_calls());
  const int code = fuzz_until(
      argc, argv, [&](Random& random) { fuzzer.trial(random); },
      [&](double) { return fuzzer.entries >= wanted; });
  std::printf("fuzz: [%llu] entries dispatched, [%llu] refusals\n",
              static_cast<unsigned long long>(fuzzer.entries),
              static_cast<unsigned long long>(fuzzer.refusals));
  // A trial that keeps almost all from it must not go unseen.
  if (wanted) check_share("in trials", fuzzer.accepted);
  return code;
}
