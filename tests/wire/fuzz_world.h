// What the dispatch fuzzer puts around a session: memory of a channel, a device, objects.
#ifndef PYFT_TESTS_WIRE_FUZZ_WORLD_H_
#define PYFT_TESTS_WIRE_FUZZ_WORLD_H_

#include <sys/mman.h>

#include "fake_device.h"
#include "server/handlers/library.h"
#include "wire/fuzz_backend.h"
#include "wire/seed_hints.h"

namespace pyft {

inline constexpr uint64_t kArea = 1 << 16;

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

// Handles and addresses in seeds and corpus: what makes a changed entry still mean something.
struct Dictionary {
  std::vector<Handle> handles;
  std::vector<uint64_t> words;

  explicit Dictionary(const std::vector<Seed>& corpus) {
    for (uint64_t kind = 1; kind <= static_cast<uint64_t>(HandleKind::kCommunicator); ++kind)
      handles.push_back({seed_handle(static_cast<HandleKind>(kind))});
    for (const Seed& seed : corpus)
      for (size_t at = 0; at + 8 <= seed.body.size(); at += 8) add(seed.body, at);
    for (const Handle handle : handles) words.push_back(handle.value);
    for (uint8_t type = 0; type < std::size(kObjectTypeNames); ++type)
      for (const uint32_t number : {kSeedObject, kNewSeedObject})
        words.push_back(ObjectId::make(type, number).value);
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

// Binds what seeds and corpus name, each object if it is wanted.
template <class Wanted>
void bind_objects(const Dictionary& dictionary, server::Session& session, Wanted wanted) {
  for (const Handle handle : dictionary.handles)
    if (wanted()) session.table(handle.kind()).bind(handle, fuzz_backend::new_object<void*>());
  for (uint8_t type = 1; type < std::size(kObjectTypeNames); ++type)
    if (wanted())
      server::keep_object(session, ObjectId::make(type, kSeedObject).value,
                          static_cast<ObjectType>(type), fuzz_backend::new_object<void*>());
}

}  // namespace pyft

#endif  // PYFT_TESTS_WIRE_FUZZ_WORLD_H_
