#include "checkpoint/resources/objects.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "checkpoint/bytes_passed.h"
#include "checkpoint/resources/kernel_heap.h"
#include "checkpoint/resources/variables.h"
#include "pyft/handle.h"
#include "ring/object_log.h"
#include "ring/reader.h"

namespace pyft::checkpoint {

namespace {

constexpr int kReadTries = 1000;

struct Object {
  ring::EntryHeader header;
  std::vector<std::byte> body, payload;
};

std::string entry_text(const ring::EntryHeader& header) {
  return "entry [" + std::to_string(header.seq) + "] of call [" + std::to_string(header.call) + "]";
}

// What there is to make, in copies: the client goes on, and frees what it has committed.
struct Objects {
  std::vector<Object> logged;  // of the object log
  std::vector<Object>
      in_ring;  // what was made and ended between the last committed cut and `until`
  uint64_t committed = 0;
};

Object copy_of(const ring::EntryHeader& entry, std::span<const std::byte> body,
               std::span<const std::byte> payload) {
  return {entry, {body.begin(), body.end()}, {payload.begin(), payload.end()}};
}

std::string read_ring(const ring::LogView& log, const ring::Manifest& until, Objects* objects) {
  constexpr uint16_t kOfObjects = ring::kCreates | ring::kDestroys | ring::kStreamCaptured;
  objects->in_ring.clear();
  if (objects->committed > until.position)
    return "the log before position [" + std::to_string(objects->committed) +
           "] is gone and the last snapshot is of position [" + std::to_string(until.position) +
           "]";
  ring::Reader reader(log, ring::Reader::Mode::kServer, objects->committed);
  ring::EntryView entry;
  while (reader.position() < until.position) {
    if (reader.next(&entry) != ring::Reader::Next::kEntry)
      return "the log ends before the snapshotted position: " + reader.error();
    if (ring::is_refused(entry.header, entry.body)) continue;
    if (entry.header.flags & kOfObjects && entry.header.seq <= until.seq)
      objects->in_ring.push_back(copy_of(entry.header, entry.body, entry.payload));
  }
  return {};
}

std::string missing(const ring::LogHeader& header) {
  const uint64_t objects = header.objects_missing.load();
  if (!objects) return {};
  return "the object log lacks [" + std::to_string(objects) +
         "] objects, for which it had no room: set PYFT_OBJECT_LOG_MB higher";
}

// The client may be folding or freeing entries while this reads: it counts when nothing has moved.
std::string read_objects(const ring::LogView& log, const ring::Manifest& until, Objects* objects) {
  const ring::LogHeader& header = *log.header;
  for (int attempt = 0; attempt < kReadTries; ++attempt) {
    std::string error;
    objects->logged.clear();
    objects->committed = header.committed.load(std::memory_order_seq_cst);
    const uint64_t begin = header.object_log_begin.load(std::memory_order_seq_cst);
    const uint64_t used = header.object_log_used.load(std::memory_order_seq_cst);
    ring::for_each_object(
        log,
        [&](const ring::EntryHeader& entry, std::span<const std::byte> body,
            std::span<const std::byte> payload) {
          objects->logged.push_back(copy_of(entry, body, payload));
        },
        &error);
    if (error.empty()) error = missing(header);
    if (error.empty()) error = read_ring(log, until, objects);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (header.committed.load() == objects->committed && header.object_log_begin.load() == begin &&
        header.object_log_used.load() == used)
      return error;
  }
  return "the client never stops writing its object log";
}

class ObjectRestorer {
 public:
  ObjectRestorer(ring::Channel& channel, const Store& store, DeviceState& state,
                 Placement& placement, ObjectMaker& maker)
      : channel_(channel),
        state_(state),
        placement_(placement),
        maker_(maker),
        until_(store.committed().manifest),
        places_(store.committed().places),
        variables_(places_, state, placement) {}

  std::string run() {
    Objects objects;
    std::string error = read_objects(channel_.log_view(), until_, &objects);
    if (!error.empty()) return error;
    std::erase_if(objects.logged, [&](const Object& object) {
      return object.header.seq > until_.seq || !seen_.insert(object.header.seq).second;
    });
    choose_modules(objects.logged);
    for (Object& object : objects.logged) {
      if (!error.empty()) return error;
      error = make(object);
    }
    if (error.empty()) error = make_of_ring(objects.in_ring);
    if (error.empty()) error = restore_kernel_heap(places_, state_, placement_);
    if (error.empty()) error = variables_.check();
    return error;
  }

 private:
  void choose_modules(const std::vector<Object>& objects) {
    std::vector<ModuleImage> images;
    for (const Object& object : objects) {
      const uint64_t key = ring::object_key(object.body);
      if (object.header.flags & ring::kCreates && Handle{key}.kind() == HandleKind::kModule)
        images.push_back({key, object.payload});
    }
    if (const auto ready = variables_.choose(images))
      channel_.control().ready_modules = static_cast<uint32_t>(*ready);
  }

  // An object that the log names did exist, so that making it again must work.
  std::string make(Object& object) {
    object.header.flags &= static_cast<uint16_t>(~ring::kWantsReply);
    object.header.reply_slot = ring::kNoSlot;
    known_.insert(ring::object_key(object.body));
    std::string error = dispatch(object.header, object.body, object.payload);
    // Not the client's error: the agent decides what becomes of it.
    if (error.empty() && maker_.failed())
      error = entry_text(object.header) + " of the object log fails in the new server";
    return error;
  }

  std::string dispatch(const ring::EntryHeader& header, std::span<const std::byte> body,
                       std::span<const std::byte> payload) {
    const uint64_t key = ring::object_key(body);
    if (header.flags & ring::kCreates)
      if (std::string problem = variables_.place(key); !problem.empty()) return problem;
    if (maker_.imports(header))
      if (const int code = placement_.place({.address = key, .bytes = 0, .owner = key}))
        return "memory of another process cannot be placed: code [" + std::to_string(code) + "]";
    const std::string problem = maker_.execute(header, body, payload);
    pass_bytes(sizeof header + body.size() + payload.size());
    return problem.empty() ? problem : entry_text(header) + ": " + problem;
  }

  // The client may have begun to fold just this, so that some of it may be gone from the object log
  // already: an object that is ended here without having been made is one of those, and not missed.
  std::string make_of_ring(const std::vector<Object>& objects) {
    std::unordered_set<uint64_t> alive = known_;
    std::unordered_map<uint64_t, uint64_t> ended;  // key -> sequence number of its end
    for (const Object& object : objects) {
      const uint64_t key = ring::object_key(object.body);
      if (object.header.flags & ring::kCreates)
        alive.insert(key);
      else if (object.header.flags & ring::kDestroys && !alive.contains(key))
        ended[key] = object.header.seq;
    }
    for (const Object& object : objects) {
      const auto end = ended.find(ring::object_key(object.body));
      const bool gone = end != ended.end() && object.header.seq <= end->second;
      if (gone || seen_.contains(object.header.seq)) continue;
      if (std::string error = dispatch(object.header, object.body, object.payload); !error.empty())
        return error;
    }
    return {};
  }

  ring::Channel& channel_;
  DeviceState& state_;
  Placement& placement_;
  ObjectMaker& maker_;
  const ring::Manifest& until_;
  const std::vector<ring::ManifestPlace>& places_;
  VariableRestorer variables_;
  std::unordered_set<uint64_t> seen_;   // sequence numbers
  std::unordered_set<uint64_t> known_;  // objects
};

}  // namespace

void save_objects(const ring::EntryHeader& cut, uint64_t position, ring::Manifest* manifest) {
  manifest->seq = cut.seq;
  manifest->position = position;
}

Restored restore_objects(ring::Channel& channel, const Store& store, DeviceState& state,
                         Placement& placement, ObjectMaker& maker) {
  Restored restored;
  if (!store.has_committed()) {
    placement.choose_modules({}, {});
    if (const uint64_t gone = channel.log_view().header->committed.load())
      restored.error = "there is no snapshot, and the log before position [" +
                       std::to_string(gone) + "] is gone";
    return restored;
  }
  restored.position = store.committed().manifest.position;
  restored.error = ObjectRestorer(channel, store, state, placement, maker).run();
  return restored;
}

}  // namespace pyft::checkpoint
