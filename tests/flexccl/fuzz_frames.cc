// Fuzzes what arrives on links that exist: frames of an insider, with and without its signature,
// and the counters of a FIFO in shared memory.
#include <thread>

#include "base/error.h"
#include "flexccl.h"
#include "fuzz.h"
#include "rendezvous/rendezvous.h"
#include "transport/endpoint.h"
#include "transport/fifo.h"
#include "transport/frame.h"

namespace {

constexpr int kCount = 1000;

// Rank 0 of two ranks, in an operation whose other rank is this fuzzer.
struct Victim {
  Victim(Random& random) {
    constexpr flexcclTransport_t kKinds[] = {flexcclLoopback, flexcclShm, flexcclTcp};
    transport = kKinds[random.below(3)];
    flexcclSetTransport(flexcclLoopback);  // an id whose ranks meet in memory
    flexcclSetTimeout(1000);               // a frame of a later epoch is waited for
    ncclUniqueId raw;
    FUZZ_CHECK(ncclGetUniqueId(&raw) == ncclSuccess);
    flexcclSetTransport(transport);
    id = flexccl::parse_unique_id(raw);
    ncclGroupStart();
    for (int r = 0; r < 2; ++r) ncclCommInitRank(&comms[r], 2, raw, r);
    FUZZ_CHECK(ncclGroupEnd() == ncclSuccess);
  }
  ~Victim() {
    for (ncclComm_t comm : comms) ncclCommAbort(comm);
  }
  std::unique_ptr<flexccl::Outbound> connect() {
    const flexccl::Key key = flexccl::job_key(id);
    const flexccl::LinkRequest request{{id.comm, 0, 0}, 1, transport, key, flexccl::in_ms(5000)};
    auto& endpoint = flexccl::Endpoint::process();
    return endpoint.connect(endpoint.address(), request, bell)->wait(std::chrono::seconds(5));
  }
  flexccl::Doorbell bell;
  flexcclTransport_t transport;
  flexccl::UniqueId id;
  ncclComm_t comms[2];
};

// The frame with which rank 1 would answer, and its payload.
Message frame(const Victim& victim, const flexccl::OpDescriptor& op, std::uint64_t sequence) {
  flexccl::FrameHeader header{};
  header.magic = flexccl::kMagic;
  header.comm = victim.id.comm;
  header.sequence = sequence;
  header.bytes = kCount * 4;
  header.op = op;
  header.source = 1;
  header.mac = flexccl::frame_mac(flexccl::job_key(victim.id), header);
  Message bytes = message_of(header);
  bytes.resize(sizeof header + (kCount * 4 + 63) / 64 * 64, 1);
  return bytes;
}

void sign(const Victim& victim, Message* bytes) {
  if (bytes->size() < sizeof(flexccl::FrameHeader)) return;
  auto header = value_of<flexccl::FrameHeader>(*bytes);
  header.mac = flexccl::frame_mac(flexccl::job_key(victim.id), header);
  std::memcpy(bytes->data(), &header, sizeof header);
}

void write_all(flexccl::Outbound& link, Message bytes) {
  bytes.resize((bytes.size() + 63) / 64 * 64);
  std::size_t done = 0;
  try {
    for (int patience = 0; done < bytes.size() && patience < 50; ++patience) {
      const iovec part{bytes.data() + done, bytes.size() - done};
      const std::size_t now = link.write({&part, 1});
      done += now;
      if (!now) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const flexccl::Error&) {
    // The victim has hung up.
  }
}

void fuzz_frame(Random& random) {
  Victim victim(random);
  std::vector<float> data(kCount + 2, 7.0f), whole = data;
  const bool changed = !random.once_in(8);  // unchanged: must work, or nothing here reaches deep
  ncclRecv(data.data() + 1, kCount, ncclFloat32, 1, victim.comms[0], nullptr);
  Message bytes = frame(
      victim, {.collective = flexccl::Collective::kSendRecv, .dtype = ncclFloat32, .count = kCount},
      0);
  Message header(bytes.begin(), bytes.begin() + sizeof(flexccl::FrameHeader));
  if (changed && random.once_in(2)) {
    scramble(random, &header);
    std::copy(header.begin(), header.end(), bytes.begin());
    if (random.once_in(2)) sign(victim, &bytes);
  } else if (changed) {
    mutate(random, &bytes);
  }
  {
    const auto link = victim.connect();
    write_all(*link, bytes);
  }
  const ncclResult_t code = flexcclSynchronize(victim.comms[0]);
  FUZZ_CHECK(changed || code == ncclSuccess);
  FUZZ_CHECK(data.front() == 7.0f && data.back() == 7.0f);
  if (code != ncclSuccess) FUZZ_CHECK(std::strstr(ncclGetLastError(victim.comms[0]), "rank ["));
}

// A peer on the same host writes what it likes into the memory that both map.
void fuzz_fifo(Random& random) {
  const auto memory = flexccl::Memory::create(flexccl::kFifoMemoryBytes);
  auto* header = reinterpret_cast<flexccl::FifoHeader*>(memory->data());
  const bool reads = random.once_in(2);
  flexccl::FifoInbound in(memory, flexccl::Doorbell(), flexccl::Fd());
  flexccl::FifoOutbound out(memory, flexccl::Doorbell(), flexccl::Fd());
  std::vector<std::byte> data(random.below(64) * 64 * 1024 + 64);
  try {
    for (int step = 0; step < 30; ++step) {
      auto& counter = reads ? header->tail : header->head;
      const std::uint64_t blocks = random.below(flexccl::kFifoBytes / 32) * 64;
      counter.store(random.once_in(3) ? random.interesting() : counter.load() + blocks);
      if (random.once_in(40)) (reads ? header->writer_left : header->reader_left).store(1);
      if (reads) {
        const auto arrived = in.peek();
        FUZZ_CHECK(arrived.size() % 64 == 0 && arrived.size() <= flexccl::kFifoBytes);
        unsigned sum = 0;
        for (std::size_t i = 0; i < arrived.size(); i += 4096) sum += unsigned(arrived[i]);
        FUZZ_CHECK(sum == 0);
        in.consume(random.below(arrived.size() / 64 + 1) * 64);
      } else {
        const iovec parts[] = {{data.data(), 64}, {data.data(), data.size()}};
        FUZZ_CHECK(out.write(parts) <= flexccl::kFifoBytes);
      }
    }
  } catch (const flexccl::Error& error) {
    FUZZ_CHECK(error.code == ncclRemoteError);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return fuzz_main(argc, argv, [](Random& random) {
    fuzz_frame(random);
    for (int i = 0; i < 5; ++i) fuzz_fifo(random);
  });
}
