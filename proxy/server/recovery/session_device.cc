#include "server/recovery/session_device.h"

#include <memory>
#include <utility>

#include "api/call_ids.h"
#include "checkpoint/memory/copier.h"
#include "pyft/log.h"
#include "pyft/settings.h"
#include "server/handlers/left_streams.h"
#include "server/handlers/live_objects.h"
#include "server/handlers/moved_variables.h"
#include "server/handlers/scratch.h"
#include "server/session/callbacks.h"

namespace pyft::server {

namespace {

void add_place(uint64_t address, uint64_t bytes, uint64_t owner,
               std::vector<ring::ManifestPlace>* places) {
  if (bytes) places->push_back({address, bytes, owner});
}

// Said once: it stays so.
void say_that_host_hashes(const Session& session, const std::string& why) {
  PYFT_LOG(kRecovery, kWarning,
           "device [%u]: snapshots copy all memory to the host to hash it, which the "
           "device cannot do: %s",
           session.device(), why.c_str());
}

// A restore names variables of modules by where they lay.
uint64_t place_now(Session& session, uint64_t address) {
  const auto phase = static_cast<ring::Phase>(session.channel().control().phase.load());
  return phase == ring::Phase::kRestore ? session.state<MovedVariables>().now_at(address) : address;
}

// In a stream of its own.
class StreamCopies : public checkpoint::OwnMemory {
 public:
  // nullptr: the device lacks a call.
  static std::unique_ptr<checkpoint::OwnMemory> make(const backend::Table& api) {
    if (!api.cuMemAlloc_v2 || !api.cuMemFree_v2 || !api.cuMemcpyAsync ||
        !api.cuStreamCreateWithPriority || !api.cuStreamSynchronize)
      return nullptr;
    CUstream stream = nullptr;
    if (api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0)) return nullptr;
    return std::make_unique<StreamCopies>(api, stream);
  }
  StreamCopies(const backend::Table& api, CUstream stream) : api_(api), stream_(stream) {}
  uint64_t allocate(uint64_t bytes) override {
    CUdeviceptr address = 0;
    return api_.cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS ? address : 0;
  }
  void release(uint64_t address) override { api_.cuMemFree_v2(address); }
  int duplicate(uint64_t to, uint64_t from, uint64_t bytes) override {
    return api_.cuMemcpyAsync(to, from, bytes, stream_);
  }
  int duplicated() override { return api_.cuStreamSynchronize(stream_); }

 private:
  const backend::Table& api_;
  CUstream stream_;
};

class OwnProcess : public checkpoint::BackgroundReads {
 public:
  bool peeks() const override { return true; }
  bool peek(uint64_t address, std::byte* to, uint64_t bytes) override {
    return checkpoint::peek_own_memory(address, to, bytes);
  }
};

class DriverReads : public checkpoint::BackgroundReads {
 public:
  DriverReads(const Session& session, DeviceCopies& copies) : session_(session), copies_(copies) {}
  int read_beside(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) override {
    return copies_.read_beside(next, take);
  }
  int read_beside_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                         const checkpoint::TakeDigest& hashed) override {
    return copies_.read_beside_hashed(next, take, hashed);
  }
  bool ready() override { return copies_.ready_beside(); }
  void enter() override { session_.enter_device(); }

 private:
  const Session& session_;
  DeviceCopies& copies_;
};

std::unique_ptr<checkpoint::BackgroundReads> background_reads(const Session& session, bool soft,
                                                              DeviceCopies& copies) {
  if (!soft) return std::make_unique<DriverReads>(session, copies);
  return checkpoint::can_peek_own_memory() ? std::make_unique<OwnProcess>() : nullptr;
}

std::unique_ptr<checkpoint::DeviceMemory> memory_of(Session& session, const backend::Extras& extras,
                                                    DeviceCopies& copies, checkpoint::DigestKey key,
                                                    std::shared_ptr<DeviceDigests> digests) {
  if (extras.view) return std::make_unique<SoftMemory>(session, copies, key, extras);
  return std::make_unique<DriverMemory>(session, copies, key, std::move(digests));
}

}  // namespace

ring::DigestKind digest_kind(const backend::Extras& extras) {
  const bool off = extras.view || !settings::device_digest().value_or(true);
  return off ? ring::DigestKind::kXxh3 : ring::DigestKind::kNh;
}

DriverMemory::DriverMemory(Session& session, DeviceCopies& copies, checkpoint::DigestKey key,
                           std::shared_ptr<DeviceDigests> ready)
    : session_(session), copies_(copies) {
  if (key.kind != ring::DigestKind::kNh) return;
  std::string why;
  digests_ = std::move(ready);
  if (digests_)
    digests_->set_seed(key.seed);
  else
    digests_ =
        DeviceDigests::make(session.backend(), session.ordinal(), key.seed, digest_images(), &why);
  hashes_ = digests_ != nullptr;
  copies_.hash_by(digests_);
  if (!hashes_) say_that_host_hashes(session, why);
}

int DriverMemory::read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) {
  const auto next_now = [&](checkpoint::MemoryRange* range) {
    const bool more = next(range);
    if (more) range->address = place_now(session_, range->address);
    return more;
  };
  return copies_.read(next_now, take);
}

int DriverMemory::write(const checkpoint::NextContent& next) {
  const auto next_now = [&](checkpoint::Content* content) {
    const bool more = next(content);
    if (more) content->address = place_now(session_, content->address);
    return more;
  };
  return copies_.write(next_now);
}

// What these threads look up in the session is made here, by the one that may.
unsigned DriverMemory::threads() {
  place_now(session_, 0);
  return copies_.prepare_writers(checkpoint::threads_at_once());
}

int DriverMemory::digests(std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out) {
  if (!digests_) return checkpoint::kNotOnDevice;
  std::vector<checkpoint::MemoryRange> now(ranges.begin(), ranges.end());
  for (checkpoint::MemoryRange& range : now) range.address = place_now(session_, range.address);
  const int code = digests_->compute(now, out);
  if (!code || session_.device_failure()) return code;
  say_that_host_hashes(session_, std::string("[") + digests_->failed() + "] fails with code [" +
                                     std::to_string(code) + "]");
  digests_.reset();
  return checkpoint::kNotOnDevice;
}

// The default streams, then the program's own, then what is in none of them: of a stream that was
// destroyed the work goes on. A device that works by itself is waited for then, for what is left.
int SessionState::idle() {
  const auto query = session_.backend().cuStreamQuery;
  if (!query) return session_.backend().cuCtxSynchronize();
  int code = query(nullptr);
  if (code == 0) code = query(CU_STREAM_PER_THREAD);
  session_.table(HandleKind::kStream).for_each([&](void* stream) {
    if (code == 0) code = query(static_cast<CUstream>(stream));
  });
  if (code == 0) code = session_.state<LeftStreams>().idle(session_.backend());
  if (code == 0 && !session_.works()) code = session_.backend().cuCtxSynchronize();
  return code;
}

// A device that shows nothing may wait as well.
bool SessionState::waits() {
  const ring::ControlPage& page = session_.channel().control();
  return !progress() || session_.device_waits() ||
         page.callback_asked.load() != page.callback_done.load();
}

bool SessionState::capturing() {
  return open_captures(session_) != 0;
}

void SessionState::mapped(std::vector<checkpoint::MemoryRange>* ranges) {
  allocated_memory(session_, ranges);
  accessible_mappings(session_, ranges);
}

std::string SessionState::out_of_reach() {
  return unmapped_contents(session_);
}

void SessionState::variables(std::vector<ring::ManifestPlace>* places) {
  unsigned long long address = 0, bytes = 0;
  for (const auto& [handle, loaded] : loaded_modules(session_)) {
    for (const checkpoint::MemoryRange& range : loaded.variables)
      add_place(range.address, range.bytes, handle, places);
    if (extras_.module_variables && extras_.module_variables(loaded.module, &address, &bytes) == 0)
      add_place(address, bytes, handle, places);
  }
}

checkpoint::MemoryRange SessionState::kernel_heap() {
  unsigned long long address = 0, bytes = 0;
  const bool known =
      extras_.kernel_heap && extras_.kernel_heap(session_.ordinal(), 0, &address, &bytes) == 0;
  return known ? checkpoint::MemoryRange{address, bytes} : checkpoint::MemoryRange{};
}

void SessionState::saved(uint64_t seq) {
  session_.state<Callbacks::Handle>().all->keep_runs(session_.recovery().journal(), seq);
  session_.state<ScratchMemory>().release(session_.backend());
}

bool SessionState::reads_host(std::byte* at, uint64_t bytes) {
  const auto call = session_.backend().cuMemHostRegister_v2;
  return call && call(at, bytes, CU_MEMHOSTREGISTER_PORTABLE) == 0;
}

bool SessionObjects::imports(const ring::EntryHeader& header) const {
  return header.call == static_cast<uint16_t>(Call::pyftKeepImport);
}

SessionPlacement::SessionPlacement(Session& session, const backend::Extras& extras,
                                   ReadyModules* ready)
    : session_(session), extras_(extras), ready_(ready) {
  if (relocates()) look_up_variables(session);
  if (ready) use_ready_modules(session, ready);
}

int SessionPlacement::place(const ring::ManifestPlace& place) {
  const int device = session_.ordinal();
  if (!extras_.place) return 0;
  if (!extras_.kernel_heap) return CUDA_ERROR_NOT_SUPPORTED;
  if (const int code = extras_.place(device, place.address)) return code;
  if (place.owner) return 0;
  unsigned long long address = 0, bytes = 0;
  if (const int code = extras_.kernel_heap(device, 1, &address, &bytes)) return code;
  return address == place.address && bytes == place.bytes ? 0 : CUDA_ERROR_INVALID_ADDRESS_SPACE;
}

std::string SessionPlacement::relocate(const std::vector<ring::ManifestPlace>& before) {
  MovedVariables& moved = session_.state<MovedVariables>();
  const std::string problem = moved.find(loaded_modules(session_), before);
  if (problem.empty() && moved.count())
    PYFT_LOG(kRecovery, kWarning,
             "device [%u]: variables at [%zu] places lie elsewhere than before: "
             "pointers to them, or to functions of their modules, that kernels have stored in "
             "memory are not right any more",
             session_.device(), moved.count());
  return problem;
}

std::optional<size_t> SessionPlacement::choose_modules(
    std::span<const checkpoint::ModuleImage> images, std::span<const ring::ManifestPlace> places) {
  return ready_ ? std::optional(ready_->choose(images, places)) : std::nullopt;
}

bool SessionDevice::make_room() {
  const bool own = copies_.make_room(), others = others_ && others_->make_room();
  return own || others;
}

SessionDevice::SessionDevice(Session& session, const backend::Backend& backend,
                             checkpoint::DigestKey key, bool own,
                             std::shared_ptr<DeviceDigests> digests, ReadyModules* modules)
    : copies_(session, !backend.is_soft()),
      memory_(memory_of(session, backend.extras, copies_, key, std::move(digests))),
      state_(session, backend.extras),
      placement_(session, backend.extras, modules),
      background_(background_reads(session, backend.is_soft(), copies_)),
      own_(own ? StreamCopies::make(session.backend()) : nullptr) {}

}  // namespace pyft::server
