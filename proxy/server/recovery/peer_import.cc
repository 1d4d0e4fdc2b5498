#include "server/recovery/peer_import.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "pyft/log.h"
#include "pyft/settings.h"
#include "pyft/unique_fd.h"
#include "ring/layout.h"
#include "server/recovery/wait_for.h"

namespace pyft::server {

namespace {

constexpr uint64_t kMostPeers = 2;  // the second may be a step behind the first
constexpr uint64_t kMostRoundBytes = uint64_t{4} << 30;

std::string refused(const char* call, int code) {
  return std::string("[") + call + "] fails with code [" + std::to_string(code) + "]";
}

bool is_complete(const backend::Table& table) {
  return table.cuMemImportFromShareableHandle && table.cuMemRelease && table.cuMemAddressReserve &&
         table.cuMemAddressFree && table.cuMemMap && table.cuMemUnmap && table.cuMemSetAccess &&
         table.cuMemcpyAsync && table.cuStreamCreateWithPriority && table.cuStreamQuery &&
         table.cuStreamDestroy_v2;
}

}  // namespace

// One replica: what is mapped of its memory, and what has been in its way.
class PeerImport::Peer {
 public:
  Peer(const PeerImport& owner, int link) : owner_(owner), table_(owner.table_), link_(link) {}
  Peer(const Peer&) = delete;
  ~Peer() { unmap(); }

  const std::string& problem() const { return problem_; }
  // Begins to copy a block; false: some of it is not to be had.
  bool copy(const ring::ManifestBlock& block);
  // Precondition: nothing is being copied.
  void unmap();
  // What may still be copied from stays mapped.
  void leave() { mapped_.clear(); }

 private:
  struct Mapped {
    checkpoint::MemoryRange range;  // as if it were this server's own
    CUdeviceptr at;
  };
  const Mapped* covering(uint64_t address);
  void refuse(uint64_t code);
  bool ask(uint64_t offset, AgentMessage* answer);
  std::string map(int fd, uint64_t bytes, CUdeviceptr* at) const;
  int allow(CUdeviceptr at, uint64_t bytes) const;

  const PeerImport& owner_;
  const backend::Table& table_;
  const int link_;
  uint64_t waited_ns_ = 0, refusals_ = 0;  // of these, in a row
  std::vector<Mapped> mapped_;
  std::string problem_;
};

bool PeerImport::Peer::copy(const ring::ManifestBlock& block) {
  const uint64_t end = block.address + block.bytes;
  for (uint64_t at = block.address; at < end;) {
    const Mapped* const from = covering(at);
    if (!from) return false;
    const uint64_t inside = at - from->range.address;
    const uint64_t part = std::min(end - at, from->range.bytes - inside);
    if (const int code = table_.cuMemcpyAsync(at, from->at + inside, part, owner_.stream_)) {
      problem_ = refused("cuMemcpyAsync", code);
      return false;
    }
    at += part;
  }
  return true;
}

void PeerImport::Peer::unmap() {
  for (const Mapped& one : mapped_) {
    table_.cuMemUnmap(one.at, one.range.bytes);
    table_.cuMemAddressFree(one.at, one.range.bytes);
  }
  mapped_.clear();
}

// Blocks come in the order of their addresses: it is the last one, or a new one.
const PeerImport::Peer::Mapped* PeerImport::Peer::covering(uint64_t address) {
  const auto has = [&](const checkpoint::MemoryRange& range) {
    return address - range.address < range.bytes;
  };
  if (!mapped_.empty() && has(mapped_.back().range)) return &mapped_.back();
  AgentMessage answer{};
  const uint64_t offset = address - owner_.window_.address;
  const bool answered = ask(offset, &answer);
  const UniqueFd memory(answer.fd);
  if (!answered) return nullptr;
  const auto [begin, size, result] = msg::Memory::of(answer.words);
  if (result) return refuse(result), nullptr;
  refusals_ = 0;
  const bool sound =
      offset - begin < size && begin < owner_.window_.bytes && size <= owner_.window_.bytes - begin;
  CUdeviceptr at = 0;
  problem_ = sound && memory.valid() ? map(memory.get(), size, &at)
                                     : "it lends other memory than was asked for";
  if (!problem_.empty()) return nullptr;
  mapped_.push_back({{owner_.window_.address + begin, size}, at});
  return &mapped_.back();
}

// It may have given back one block, or be unable to lend any.
void PeerImport::Peer::refuse(uint64_t code) {
  if (++refusals_ == owner_.limits_.refusals)
    problem_ = "it cannot lend its memory: code [" + std::to_string(code) + "]";
}

bool PeerImport::Peer::ask(uint64_t offset, AgentMessage* answer) {
  const uint64_t began = ring::now_ns();
  const uint64_t patience =
      owner_.limits_.answers_ns - std::min(waited_ns_, owner_.limits_.answers_ns);
  send_message(link_, msg::WantMemory{.offset = offset});
  pollfd poller{link_, POLLIN | POLLRDHUP, 0};
  const bool some = poll(&poller, 1, static_cast<int>(patience / 1'000'000)) > 0;
  waited_ns_ += ring::now_ns() - began;
  if (!some)
    problem_ = "it does not answer";
  else if (!receive_message(link_, answer))
    problem_ = "it has ended";
  else if (!answer->as<msg::Memory>())
    problem_ = "it answers something else";
  return problem_.empty();
}

// Handles are not needed any more when their memory is mapped.
std::string PeerImport::Peer::map(int fd, uint64_t bytes, CUdeviceptr* at) const {
  CUmemGenericAllocationHandle handle{};
  void* const descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  int code = table_.cuMemImportFromShareableHandle(&handle, descriptor,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (code) return refused("cuMemImportFromShareableHandle", code);
  const char* call = "cuMemAddressReserve";
  code = table_.cuMemAddressReserve(at, bytes, 0, 0, 0);
  const bool reserved = !code;
  if (!code) call = "cuMemMap", code = table_.cuMemMap(*at, bytes, 0, handle, 0);
  const bool mapped = reserved && !code;
  if (!code) call = "cuMemSetAccess", code = allow(*at, bytes);
  if (code && mapped) table_.cuMemUnmap(*at, bytes);
  if (code && reserved) table_.cuMemAddressFree(*at, bytes);
  table_.cuMemRelease(handle);
  return code ? refused(call, code) : std::string();
}

// To read is enough, but not every driver may know memory of devices that can only be read.
int PeerImport::Peer::allow(CUdeviceptr at, uint64_t bytes) const {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = owner_.ordinal_;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  if (table_.cuMemSetAccess(at, bytes, &access, 1) == CUDA_SUCCESS) return 0;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return table_.cuMemSetAccess(at, bytes, &access, 1);
}

PeerImport::~PeerImport() {
  if (stream_) table_.cuStreamDestroy_v2(stream_);
}

bool PeerImport::prepare() {
  if (stream_) return true;
  if (!is_complete(table_)) {
    refusal_ = "the driver lacks a function";
    return false;
  }
  const int code = table_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  if (code) refusal_ = refused("cuStreamCreateWithPriority", code);
  return !code;
}

// By address, so that those of one mapping follow each other.
std::vector<size_t> PeerImport::worth_asking(std::span<const ring::ManifestBlock> blocks,
                                             const std::vector<bool>& there) const {
  std::vector<size_t> worth;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const uint64_t offset = blocks[i].address - window_.address;
    if (!there[i] && blocks[i].bytes >= limits_.least_bytes && offset < window_.bytes &&
        blocks[i].bytes <= window_.bytes - offset)
      worth.push_back(i);
  }
  std::ranges::sort(worth, {}, [&](size_t i) { return blocks[i].address; });
  return worth;
}

std::string PeerImport::fetch(std::span<const ring::ManifestBlock> blocks,
                              checkpoint::BlockCheck& check, std::vector<bool>* there) {
  std::vector<size_t> left = worth_asking(blocks, *there);
  for (uint64_t attempt = 0; attempt < kMostPeers && !left.empty(); ++attempt) {
    const UniqueFd link(servers_.connect(attempt));
    if (!link.valid() || !prepare()) break;
    Peer peer(*this, link.get());
    const std::string fatal = from(peer, blocks, check, &left, there);
    if (!fatal.empty()) return fatal;
    if (!peer.problem().empty()) refusal_ = peer.problem();
  }
  return {};
}

// Of `left` stays what this one does not have. Only what a later copy could change once more is
// an error: what has been said to be copied has to have been.
std::string PeerImport::from(Peer& peer, std::span<const ring::ManifestBlock> blocks,
                             checkpoint::BlockCheck& check, std::vector<size_t>* left,
                             std::vector<bool>* there) {
  std::vector<size_t> others;
  uint64_t right = 0, wrong = 0, room = limits_.round_bytes;
  auto next = left->begin();
  while (next != left->end() && peer.problem().empty() && wrong <= right + limits_.wasted_bytes) {
    std::vector<ring::ManifestBlock> round;
    std::vector<size_t> which;
    for (uint64_t bytes = 0; next != left->end() && peer.problem().empty() && bytes < room;
         ++next) {
      const bool copied = peer.copy(blocks[*next]);
      (copied ? which : others).push_back(*next);
      if (copied) round.push_back(blocks[*next]);
      bytes += blocks[*next].bytes;
    }
    const int code = wait_for([&] { return static_cast<int>(table_.cuStreamQuery(stream_)); },
                              ring::now_ns() + limits_.copy_ns);
    if (code) {
      peer.leave();
      return "copying from another rank's GPU fails with code [" + std::to_string(code) + "]";
    }
    peer.unmap();
    const std::vector<bool> good = check.right(round);
    for (size_t i = 0; i < which.size(); ++i) {
      (*there)[which[i]] = good[i];
      (good[i] ? right : wrong) += round[i].bytes;
      if (!good[i]) others.push_back(which[i]);
    }
    room = std::min(2 * room, kMostRoundBytes);
  }
  others.insert(others.end(), next, left->end());
  std::ranges::sort(others, {}, [&](size_t i) { return blocks[i].address; });
  *left = std::move(others);
  return {};
}

checkpoint::MemoryRange device_window(uint32_t device) {
  return {ring::kDeviceWindowBase + device * ring::kDeviceWindowBytes, ring::kDeviceWindowBytes};
}

std::unique_ptr<PeerImport> make_peer_import(Session& session, PeerServers& servers, bool hashes) {
  const checkpoint::Recovery& recovery = session.recovery();
  if (!settings::peer_memory().value_or(hashes)) return nullptr;
  if (!recovery.replaces() || recovery.mode() != ring::ReplayMode::kNormal) return nullptr;
  return std::make_unique<PeerImport>(session.backend(), session.ordinal(),
                                      device_window(session.device()), servers);
}

std::string OtherRanks::from_peers(std::span<const ring::ManifestBlock> blocks,
                                   checkpoint::BlockCheck& check, std::vector<bool>* there) {
  if (!peers_) return {};
  const std::string fatal = peers_->fetch(blocks, check, there);
  if (!peers_->refusal().empty())
    PYFT_LOG(kRecovery, kWarning,
             "device [%u]: no more is copied from a replica's GPU, the rest "
             "comes from host memory: %s",
             session_.device(), peers_->refusal().c_str());
  return fatal;
}

}  // namespace pyft::server
