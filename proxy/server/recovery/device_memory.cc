#include "server/recovery/device_memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "server/handlers/live_objects.h"
#include "server/recovery/copier.h"
#include "server/recovery/device_copies.h"
#include "server/recovery/moved_variables.h"

namespace pyft::server {

namespace {

// The default streams, then the program's own, then what is in none of them: of a stream that was
// destroyed the work goes on. A device that works by itself is waited for then, for what is left.
int all_idle(Session& session) {
  const auto query = session.backend().cuStreamQuery;
  if (!query) return session.backend().cuCtxSynchronize();
  int code = query(nullptr);
  if (code == 0) code = query(CU_STREAM_PER_THREAD);
  session.table(HandleKind::kStream).for_each([&](void* stream) {
    if (code == 0) code = query(static_cast<CUstream>(stream));
  });
  if (code == 0 && !session.works()) code = session.backend().cuCtxSynchronize();
  return code;
}

void add_place(uint64_t address, uint64_t bytes, uint64_t owner,
               std::vector<ring::ManifestPlace>* places) {
  if (bytes) places->push_back({address, bytes, owner});
}

void hidden_memory(Session& session, const backend::Extras& extras,
                   std::vector<ring::ManifestPlace>* places) {
  unsigned long long address = 0, bytes = 0;
  for (const auto& [handle, loaded] : loaded_modules(session)) {
    for (const MemoryRange& range : loaded.variables)
      add_place(range.address, range.bytes, handle, places);
    if (extras.module_variables && extras.module_variables(loaded.module, &address, &bytes) == 0)
      add_place(address, bytes, handle, places);
  }
  const int device = session.ordinal();
  if (extras.kernel_heap && extras.kernel_heap(device, 0, &address, &bytes) == 0)
    add_place(address, bytes, 0, places);
}

int restore_place(Session& session, const backend::Extras& extras,
                  const ring::ManifestPlace& place) {
  const int device = session.ordinal();
  if (!extras.place || !extras.kernel_heap) return CUDA_ERROR_NOT_SUPPORTED;
  if (const int code = extras.place(device, place.address)) return code;
  if (place.owner) return 0;
  unsigned long long address = 0, bytes = 0;
  if (const int code = extras.kernel_heap(device, 1, &address, &bytes)) return code;
  return address == place.address && bytes == place.bytes ? 0 : CUDA_ERROR_INVALID_ADDRESS_SPACE;
}

// Said once: it stays so.
void say_that_host_hashes(const Session& session, const std::string& why) {
  std::fprintf(
      stderr,
      "pyft-server: device [%u]: captures copy all memory to the host to hash it, which the "
      "device cannot do: %s\n",
      session.device(), why.c_str());
}

// A restore names variables of modules by where they lay.
uint64_t place_now(Session& session, uint64_t address) {
  const auto phase = static_cast<ring::Phase>(session.channel().control().phase.load());
  return phase == ring::Phase::kRestore ? session.state<MovedVariables>().now_at(address) : address;
}

}  // namespace

ring::DigestKind digest_kind(const backend::Extras& extras) {
  const char* const wanted = std::getenv("PYFT_DEVICE_DIGEST");
  const bool off = extras.view || (wanted && !std::strcmp(wanted, "0"));
  return off ? ring::DigestKind::kXxh3 : ring::DigestKind::kNh;
}

void hash_on_device(Session& session, DigestKey key, RecoveryCalls* calls,
                    std::shared_ptr<DeviceDigests> ready) {
  if (key.kind != ring::DigestKind::kNh) return;
  std::string why;
  std::shared_ptr<DeviceDigests> digests = std::move(ready);
  if (digests)
    digests->set_seed(key.seed);
  else
    digests =
        DeviceDigests::make(session.backend(), session.ordinal(), key.seed, digest_images(), &why);
  if (!digests) return say_that_host_hashes(session, why);
  calls->digests = [&session, digests](std::span<const MemoryRange> ranges,
                                       ring::Digest* out) mutable {
    if (!digests) return kNotOnDevice;
    std::vector<MemoryRange> now(ranges.begin(), ranges.end());
    for (MemoryRange& range : now) range.address = place_now(session, range.address);
    const int code = digests->compute(now, out);
    if (!code || session.device_failure()) return code;
    say_that_host_hashes(session, std::string("[") + digests->failed() + "] fails with code [" +
                                      std::to_string(code) + "]");
    digests.reset();
    return kNotOnDevice;
  };
}

void copy_on_device(Session& session, RecoveryCalls* calls) {
  const backend::Table& api = session.backend();
  if (!api.cuMemAlloc_v2 || !api.cuMemFree_v2 || !api.cuMemcpyAsync ||
      !api.cuStreamCreateWithPriority || !api.cuStreamSynchronize)
    return;
  CUstream stream = nullptr;
  if (api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0)) return;
  calls->allocate = [&api](uint64_t bytes) -> uint64_t {
    CUdeviceptr address = 0;
    return api.cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS ? address : 0;
  };
  calls->release = [&api](uint64_t address) { api.cuMemFree_v2(address); };
  calls->duplicate = [&api, stream](uint64_t to, uint64_t from, uint64_t bytes) {
    return static_cast<int>(api.cuMemcpyAsync(to, from, bytes, stream));
  };
  calls->duplicated = [&api, stream] { return static_cast<int>(api.cuStreamSynchronize(stream)); };
}

namespace {

void copy_beside(const Session& session, const std::shared_ptr<DeviceCopies>& copies,
                 RecoveryCalls* calls) {
  calls->read_beside = [copies](const NextRange& next, const TakePiece& take) {
    return copies->read_beside(next, take);
  };
  calls->ready_beside = [copies] { return copies->ready_beside(); };
  calls->enter = [&session] { session.enter_device(); };
}

}  // namespace

RecoveryCalls recovery_calls(Session& session, const backend::Extras& extras) {
  RecoveryCalls calls;
  const auto copies = std::make_shared<DeviceCopies>(session, !extras.view);
  calls.read = [&session, copies](const NextRange& next, const TakePiece& take) {
    const auto next_now = [&](MemoryRange* range) {
      const bool more = next(range);
      if (more) range->address = place_now(session, range->address);
      return more;
    };
    return copies->read(next_now, take);
  };
  calls.write = [&session, copies](uint64_t address, const std::byte* from, uint64_t bytes) {
    return copies->write(place_now(session, address), from, bytes);
  };
  if (!extras.view) copy_beside(session, copies, &calls);
  if (extras.view)
    calls.view = [view = extras.view](uint64_t address, uint64_t bytes) {
      return static_cast<const std::byte*>(view(address, bytes));
    };
  if (extras.view && can_peek_own_memory()) calls.peek = peek_own_memory;
  if (extras.untouched)
    calls.untouched = [untouched = extras.untouched](uint64_t address, uint64_t bytes) {
      return untouched(address, bytes) != 0;
    };
  calls.idle = [&session] { return all_idle(session); };
  calls.capturing = [&session] { return open_captures(session) != 0; };
  calls.mapped = [&session](std::vector<MemoryRange>* ranges) {
    allocated_memory(session, ranges);
    accessible_mappings(session, ranges);
  };
  calls.hidden = [&session, &extras](std::vector<ring::ManifestPlace>* places) {
    hidden_memory(session, extras, places);
  };
  calls.scratch = [](std::vector<MemoryRange>*) {};
  if (extras.place)
    calls.place = [&session, &extras](const ring::ManifestPlace& place) {
      return restore_place(session, extras, place);
    };
  if (extras.module_variables) return calls;
  look_up_variables(session);
  calls.relocate = [&session](const std::vector<ring::ManifestPlace>& before) {
    MovedVariables& moved = session.state<MovedVariables>();
    const std::string problem = moved.find(loaded_modules(session), before);
    if (problem.empty() && moved.count())
      std::fprintf(
          stderr,
          "pyft-server: device [%u]: variables at [%zu] places lie elsewhere than before: "
          "pointers to them, or to functions of their modules, that kernels have stored in "
          "memory are not right any more\n",
          session.device(), moved.count());
    return problem;
  };
  return calls;
}

}  // namespace pyft::server
