#include "server/recovery/restore.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "api/call_ids.h"
#include "pyft/handle.h"
#include "ring/object_log.h"
#include "ring/reader.h"

namespace pyft::server {

namespace {

constexpr int kReadTries = 1000;

struct Object {
  ring::EntryHeader header;
  std::vector<std::byte> body, payload;
};

std::string entry_text(const ring::EntryHeader& header) {
  return "entry [" + std::to_string(header.seq) + "] of call [" + std::to_string(header.call) + "]";
}

// The client may be folding entries while this reads: a copy counts when nothing has moved.
std::string read_objects(const ring::LogView& log, std::vector<Object>* objects,
                         uint64_t* committed) {
  const ring::LogHeader& header = *log.header;
  std::string error;
  for (int attempt = 0; attempt < kReadTries; ++attempt) {
    objects->clear();
    error.clear();
    *committed = header.committed.load(std::memory_order_seq_cst);
    const uint64_t begin = header.object_log_begin.load(std::memory_order_seq_cst);
    const uint64_t used = header.object_log_used.load(std::memory_order_seq_cst);
    ring::for_each_object(
        log,
        [&](const ring::EntryHeader& entry, std::span<const std::byte> body,
            std::span<const std::byte> payload) {
          objects->push_back({entry, {body.begin(), body.end()}, {payload.begin(), payload.end()}});
        },
        &error);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (header.committed.load() == *committed && header.object_log_begin.load() == begin &&
        header.object_log_used.load() == used)
      return error;
  }
  return "the client never stops writing its object log";
}

class ObjectRestorer {
 public:
  ObjectRestorer(Session& session, const Store& store, const RecoveryCalls& calls,
                 const DispatchEntry& dispatch)
      : session_(session),
        calls_(calls),
        dispatch_(dispatch),
        until_(store.point().manifest),
        before_(store.point().places) {
    for (const ring::ManifestPlace& place : store.point().places)
      places_.emplace(place.owner, place);
  }

  std::string run() {
    std::vector<Object> objects;
    uint64_t committed = 0;
    std::string error = read_objects(session_.channel().log_view(), &objects, &committed);
    if (error.empty() && committed > until_.position)
      error = "the log before position [" + std::to_string(committed) +
              "] is gone and the last capture is of position [" + std::to_string(until_.position) +
              "]";
    const uint64_t missing = session_.channel().log_view().header->objects_missing.load();
    if (error.empty() && missing)
      error = "the object log lacks [" + std::to_string(missing) +
              "] objects, for which it had no room: set PYFT_OBJECT_LOG_MB higher";
    if (!error.empty()) return error;
    std::erase_if(objects, [&](const Object& object) {
      return object.header.seq > until_.seq || !seen_.insert(object.header.seq).second;
    });
    choose_modules(objects);
    for (Object& object : objects) {
      if (!error.empty()) return error;
      error = make(object);
    }
    if (error.empty()) error = from_ring(committed);
    if (error.empty()) error = check_places();
    return error;
  }

 private:
  void choose_modules(const std::vector<Object>& objects) {
    if (!calls_.choose_modules) return;
    std::vector<ModuleImage> images;
    for (const Object& object : objects) {
      const uint64_t key = ring::object_key(object.body);
      if (object.header.flags & ring::kCreates && Handle{key}.kind() == HandleKind::kModule)
        images.push_back({key, object.payload});
    }
    session_.channel().control().ready_modules =
        static_cast<uint32_t>(calls_.choose_modules(images, before_));
  }

  // An object that the log names did exist, so that making it again must work.
  std::string make(Object& object) {
    object.header.flags &= static_cast<uint16_t>(~ring::kWantsReply);
    object.header.reply_slot = ring::kNoSlot;
    known_.insert(ring::object_key(object.body));
    std::string error = dispatch(object.header, object.body, object.payload);
    // Not the client's error: the agent decides what becomes of it.
    if (error.empty() && session_.take_sticky())
      error = entry_text(object.header) + " of the object log fails in the new server";
    return error;
  }

  std::string dispatch(const ring::EntryHeader& header, std::span<const std::byte> body,
                       std::span<const std::byte> payload) {
    const uint64_t key = ring::object_key(body);
    const auto place = key && calls_.place ? places_.find(key) : places_.end();
    // What follows the creation of a module takes no place.
    if (place != places_.end() && header.flags & ring::kCreates && placed_.insert(key).second)
      if (const int code = calls_.place(place->second))
        return "the device does not take address [" + std::to_string(place->second.address) +
               "]: code [" + std::to_string(code) + "]";
    const bool imports = header.call == static_cast<uint16_t>(Call::pyftKeepImport);
    if (imports && calls_.place)
      if (const int code = calls_.place({.address = key, .bytes = 0, .owner = key}))
        return "memory of another process cannot be placed: code [" + std::to_string(code) + "]";
    const Status status = dispatch_(session_, header, body, payload);
    return status.ok() ? "" : entry_text(header) + ": " + status.text;
  }

  // What was made and ended between the last committed cut and the captured one. The client may
  // have begun to fold just this, so that some of it may be gone from the object log already: an
  // object that is ended here without having been made is one of those, and not missed.
  std::string from_ring(uint64_t committed) {
    constexpr uint16_t kOfObjects = ring::kCreates | ring::kDestroys | ring::kCaptured;
    const auto each = [&](auto&& body) -> std::string {
      ring::Reader reader(session_.channel().log_view(), ring::Reader::Mode::kServer, committed);
      ring::EntryView entry;
      while (reader.position() < until_.position) {
        if (reader.next(&entry) != ring::Reader::Next::kEntry)
          return "the log ends before the captured position: " + reader.error();
        if (!(entry.header.flags & kOfObjects) || entry.header.seq > until_.seq) continue;
        if (std::string error = body(entry); !error.empty()) return error;
      }
      return {};
    };
    std::unordered_set<uint64_t> alive = known_;
    std::unordered_map<uint64_t, uint64_t> ended;  // key -> sequence number of its end
    std::string error = each([&](const ring::EntryView& entry) -> std::string {
      const uint64_t key = ring::object_key(entry.body);
      if (entry.header.flags & ring::kCreates)
        alive.insert(key);
      else if (entry.header.flags & ring::kDestroys && !alive.contains(key))
        ended[key] = entry.header.seq;
      return {};
    });
    if (!error.empty()) return error;
    return each([&](const ring::EntryView& entry) -> std::string {
      const auto end = ended.find(ring::object_key(entry.body));
      const bool gone = end != ended.end() && entry.header.seq <= end->second;
      if (gone || seen_.contains(entry.header.seq)) return {};
      return dispatch(entry.header, entry.body, entry.payload);
    });
  }

  // Everything the device keeps for itself must lie where it lay.
  std::string check_places() {
    const auto heap = places_.find(0);
    if (heap != places_.end() && calls_.place)
      if (const int code = calls_.place(heap->second))
        return "the heap of kernels cannot be made again: code [" + std::to_string(code) + "]";
    if (calls_.relocate) return calls_.relocate(before_);
    std::vector<ring::ManifestPlace> now;
    calls_.hidden(&now);
    for (const auto& [owner, place] : places_) {
      const bool there = std::ranges::any_of(now, [&, &want = place](const auto& have) {
        return have.owner == want.owner && have.address == want.address && have.bytes == want.bytes;
      });
      if (!there)
        return "variables of [" + std::to_string(place.bytes) + "] bytes at [" +
               std::to_string(place.address) + "] are not there again";
    }
    return {};
  }

  Session& session_;
  const RecoveryCalls& calls_;
  const DispatchEntry& dispatch_;
  const ring::Manifest& until_;
  const std::vector<ring::ManifestPlace>& before_;
  std::unordered_multimap<uint64_t, ring::ManifestPlace> places_;  // by owner
  std::unordered_set<uint64_t> seen_;                              // sequence numbers
  std::unordered_set<uint64_t> known_, placed_;                    // objects
};

}  // namespace

Restored restore_objects(Session& session, const Store& store, const RecoveryCalls& calls,
                         const DispatchEntry& dispatch) {
  Restored restored;
  if (!store.has_point()) {
    if (calls.choose_modules) calls.choose_modules({}, {});
    if (const uint64_t gone = session.channel().log_view().header->committed.load())
      restored.error =
          "there is no capture, and the log before position [" + std::to_string(gone) + "] is gone";
    return restored;
  }
  restored.position = store.point().manifest.position;
  restored.error = ObjectRestorer(session, store, calls, dispatch).run();
  return restored;
}

}  // namespace pyft::server
