// Fuzzes the readers of a log: a ring, its arena and its object log as a real writer leaves them,
// then damaged anywhere. The reader may stop with a sentence; it never goes on for ever and never
// hands out a byte that is not there. Each area is a heap block of its own: the address sanitizer
// sees a byte too far.
//
//     fuzz_ring SECONDS SEED CORPUS
#include <memory>

#include "alive.h"
#include "api/printer.h"
#include "ring/object_log.h"
#include "ring/reader.h"
#include "ring/writer.h"
#include "wire/corpus.h"

namespace {

namespace ring = pyft::ring;

constexpr uint64_t kArea = 8192;

void check_sentence(const std::string& text) {
  FUZZ_CHECK(text.size() >= 10 && text.size() < 400 && text.find('[') != text.npos);
  for (const char c : text) FUZZ_CHECK(c >= ' ' && c <= '~');
}

// Reads every byte; volatile, or the compiler would leave it out.
void look_at(std::span<const std::byte> bytes) {
  for (const volatile std::byte& byte : bytes) static_cast<void>(static_cast<std::byte>(byte));
}

// What the other side of a log sees, with the areas apart from each other.
struct Log {
  std::unique_ptr<ring::LogHeader> header = std::make_unique<ring::LogHeader>();
  Message areas[3];  // ring, object log, arena

  explicit Log(const ring::Channel& channel) {
    std::memcpy(static_cast<void*>(header.get()), &channel.log(), sizeof *header);
    const std::byte* from[] = {channel.ring(), channel.object_log(), channel.arena()};
    for (int i = 0; i < 3; ++i) {
      areas[i] = Message(kArea);
      std::memcpy(areas[i].data(), from[i], kArea);
    }
  }
  Log(const Log& other) : areas{other.areas[0], other.areas[1], other.areas[2]} {
    std::memcpy(static_cast<void*>(header.get()), other.header.get(), sizeof *header);
  }
  ring::LogView view() const {
    return {header.get(),
            bytes_of(areas[0]).data(),
            bytes_of(areas[1]).data(),
            bytes_of(areas[2]).data(),
            kArea,
            kArea,
            kArea};
  }
};

// Entries of real jobs, with cuts so that the ring wraps and creations reach the object log.
Log make_log(Random& random, const std::vector<Seed>& corpus) {
  std::string error;
  ring::ChannelShape shape;
  shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = kArea;
  shape.bounce_bytes = ring::kPageBytes;
  const auto channel = ring::Channel::create(shape, &error);
  FUZZ_CHECK(channel);
  const AlwaysAlive alive;
  ring::Writer writer(*channel, alive);
  for (size_t n = random.below(400); n; --n) {
    const Seed& seed = corpus[random.below(corpus.size())];
    // As if a server had kept up: the writer would wait for it.
    channel->control().consumed = channel->log().appended.load();
    if (random.once_in(20)) FUZZ_CHECK(writer.cut());
    if (seed.header.call < ring::kFirstCall || seed.body.size() > writer.max_body_bytes()) continue;
    ring::Entry entry =
        writer.begin(seed.header.call, static_cast<uint32_t>(seed.body.size()),
                     seed.header.flags & (ring::kWantsReply | ring::kCreates | ring::kDestroys),
                     seed.payload.size());
    FUZZ_CHECK(entry.ok());
    std::copy_n(bytes_of(seed.body).data(), seed.body.size(), entry.body().data());
    std::copy_n(bytes_of(seed.payload).data(), seed.payload.size(), entry.payload().data());
    if (seed.header.flags & ring::kWantsReply) entry.set_reply_slot(7);
    writer.publish(std::move(entry));
  }
  return Log(*channel);
}

// The counters are damaged one by one: among thousands of bytes they would hardly be hit.
void damage(Random& random, Log* log) {
  ring::LogHeader& h = *log->header;
  std::atomic<uint64_t>* const counters[] = {&h.appended,  &h.oldest,           &h.arena_head,
                                             &h.committed, &h.object_log_begin, &h.object_log_used};
  for (auto* counter : counters)
    if (random.once_in(8))
      *counter = random.once_in(2) ? random.interesting()
                                   : counter->load() + random.interesting() * ring::kEntryAlign;
  for (Message& area : log->areas)
    if (random.once_in(2)) scramble(random, &area, random.once_in(2) ? 4 : 40);
}

// The header of an entry that the undamaged log has. Payloads are moved to where the arena ends and
// where it was written last: random numbers are hardly ever there.
void damage_an_entry(Random& random, const std::vector<uint64_t>& positions, uint64_t arena_head,
                     Message* area) {
  if (positions.empty()) return;
  const uint64_t at = positions[random.below(positions.size())] % kArea;
  if (at + sizeof(ring::EntryHeader) > kArea) return;
  Message bytes(area->begin() + static_cast<ptrdiff_t>(at),
                area->begin() + static_cast<ptrdiff_t>(at + sizeof(ring::EntryHeader)));
  if (random.once_in(2)) {
    auto header = value_of<ring::EntryHeader>(bytes);
    const uint64_t back = random.below(kArea + 64);
    header.flags |= ring::kHasPayload;
    header.payload_position = arena_head - back;
    header.payload_bytes = random.below(back + 2);
    bytes = message_of(header);
  } else {
    scramble(random, &bytes);
  }
  std::copy(bytes.begin(), bytes.end(), area->begin() + static_cast<ptrdiff_t>(at));
}

struct Read {
  std::vector<uint64_t> positions;
  std::string error;
};

Read read_all(ring::Reader reader, ring::Reader::Mode mode) {
  Read result;
  uint64_t last = reader.position();
  // More entries than fit the ring would mean that the reader goes round and round.
  for (uint64_t n = 0; n <= kArea / sizeof(ring::EntryHeader); ++n) {
    ring::EntryView entry;
    const ring::Reader::Next next = reader.next(&entry);
    if (next == ring::Reader::Next::kEmpty) return result;
    if (next == ring::Reader::Next::kDamaged) {
      result.error = reader.error();
      check_sentence(result.error);
      FUZZ_CHECK(reader.next(&entry) == ring::Reader::Next::kDamaged);  // final
      return result;
    }
    FUZZ_CHECK(reader.position() > last && entry.position >= last);
    FUZZ_CHECK(entry.body.size() + sizeof entry.header == entry.header.size);
    FUZZ_CHECK(mode == ring::Reader::Mode::kTrace || !entry.payload_overwritten);
    FUZZ_CHECK(entry.payload.empty() || entry.payload.size() == entry.header.payload_bytes);
    last = reader.position();
    look_at(entry.body), look_at(entry.payload);
    FUZZ_CHECK(!pyft::print_entry(entry.header, entry.body, true).empty());
    result.positions.push_back(entry.position);
  }
  FUZZ_CHECK(!"the reader ends");
  return result;
}

// Number of objects, or the sentence that says what is wrong.
Read read_objects(const Log& log) {
  Read result;
  const std::byte* begin = log.view().object_log;
  const bool good = ring::for_each_object(
      log.view(),
      [&](const ring::EntryHeader& header, std::span<const std::byte> body,
          std::span<const std::byte> payload) {
        look_at(body), look_at(payload);
        FUZZ_CHECK(!pyft::print_entry(header, body).empty());
        result.positions.push_back(static_cast<uint64_t>(body.data() - begin) - sizeof header);
      },
      &result.error);
  FUZZ_CHECK(good == result.error.empty());
  if (!good) check_sentence(result.error);
  FUZZ_CHECK(result.positions.size() <= kArea / sizeof(ring::EntryHeader));
  return result;
}

Read read_as_trace(const Log& log) {
  return read_all(ring::Reader::trace(log.view()), ring::Reader::Mode::kTrace);
}

// Offsets and sizes of the areas: what is accepted lies inside.
void fuzz_geometry(Random& random) {
  constexpr uint64_t kBytes = ring::kPageBytes + 3 * kArea;
  Message bytes(random.once_in(4) ? ring::kPageBytes + random.below(4) * kArea : kBytes);
  auto& header = *new (bytes.data()) ring::LogHeader{};
  header.magic = ring::kLogMagic, header.version = ring::kLayoutVersion;
  header.ring_offset = ring::kPageBytes, header.object_log_offset = header.ring_offset + kArea;
  header.arena_offset = header.object_log_offset + kArea;
  header.ring_bytes = header.object_log_bytes = header.arena_bytes = kArea;
  uint64_t* const fields[] = {&header.ring_offset,  &header.object_log_offset,
                              &header.arena_offset, &header.ring_bytes,
                              &header.arena_bytes,  &header.object_log_bytes};
  for (uint64_t* field : fields)
    if (random.once_in(4))
      *field = random.once_in(2) ? random.interesting() : random.interesting() * ring::kPageBytes;
  ring::LogView view;
  const std::string error = ring::make_log_view(bytes.data(), bytes.size(), &view);
  if (!error.empty()) return check_sentence(error);
  look_at({view.ring, view.ring_bytes}), look_at({view.arena, view.arena_bytes});
  look_at({view.object_log, view.object_log_bytes});
}

}  // namespace

int main(int argc, char** argv) {
  FUZZ_CHECK(argc == 4);
  const std::vector<Seed> corpus = read_corpus(argv[3]);
  uint64_t damaged = 0, intact = 0;
  const int code = fuzz_main(argc, argv, [&](Random& random) {
    const Log good = make_log(random, corpus);
    const Read entries = read_as_trace(good), objects = read_objects(good);
    FUZZ_CHECK(entries.error.empty() && objects.error.empty());
    const uint64_t head = good.header->arena_head;
    for (int i = 0; i < 50; ++i) {
      Log log = good;
      if (random.once_in(2)) damage(random, &log);
      if (random.once_in(2)) damage_an_entry(random, entries.positions, head, &log.areas[0]);
      if (random.once_in(2)) damage_an_entry(random, objects.positions, head, &log.areas[1]);
      const uint64_t start = random.once_in(4) ? random.interesting() : log.header->oldest.load();
      read_all(ring::Reader(log.view(), ring::Reader::Mode::kServer, start),
               ring::Reader::Mode::kServer);
      ++(read_as_trace(log).error.empty() ? intact : damaged);
      read_objects(log);
      fuzz_geometry(random);
    }
  });
  std::printf("fuzz: [%llu] logs read to their end, [%llu] found damaged\n",
              static_cast<unsigned long long>(intact), static_cast<unsigned long long>(damaged));
  FUZZ_CHECK(argv[1][0] == '0' || (intact && damaged));
  return code;
}
