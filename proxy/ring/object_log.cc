#include "ring/object_log.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pyft/fault.h"
#include "pyft/handle.h"
#include "ring/align.h"

namespace pyft::ring {

namespace {

// Key of what has been captured for a graph that is not there yet. Of no kind, and no address.
constexpr uint64_t kOpenCapture = UINT64_MAX;

// Device addresses and sizes have no kind.
bool is_handle(uint64_t word) {
  const auto kind = static_cast<uint8_t>(Handle{word}.kind());
  return kind != 0 && kind <= static_cast<uint8_t>(HandleKind::kLibraryObject);
}

std::span<const std::byte> body_of(const EntryHeader& header) {
  const uint64_t end = header.flags & kHasPayload ? header.payload_position : header.size;
  return {reinterpret_cast<const std::byte*>(&header + 1), end - sizeof header};
}

}  // namespace

uint64_t object_key(std::span<const std::byte> body) {
  uint64_t key = 0;
  if (body.size() >= sizeof key) std::memcpy(&key, body.data(), sizeof key);
  return key;
}

bool is_refused(const EntryHeader& header, std::span<const std::byte> body) {
  return header.flags & kRefused && Handle{object_key(body)}.kind() != HandleKind::kCommunicator;
}

ObjectLog::ObjectLog(Channel& channel) : channel_(channel) {}

EntryHeader* ObjectLog::at(uint64_t position) const {
  return reinterpret_cast<EntryHeader*>(channel_.object_log() +
                                        position % channel_.object_log_bytes());
}

bool ObjectLog::fold(const EntryHeader& header, std::span<const std::byte> body,
                     std::span<const std::byte> payload) {
  if (header.flags & kStreamCaptured) return fold_captured(header, body, payload);
  const uint64_t key = object_key(body);
  if (header.flags & kDestroys) {
    end(key, header, body);
    return true;
  }
  if (const auto live = live_.find(key);
      live != live_.end() && repeats_last_setting(live->second, header, body))
    return true;
  return add(key, header, body, payload);
}

bool ObjectLog::add(uint64_t key, const EntryHeader& header, std::span<const std::byte> body,
                    std::span<const std::byte> payload) {
  uint64_t position = 0;
  if (!append(header, body, payload, &position)) {
    channel_.log().object_log_lost.fetch_add(1, std::memory_order_relaxed);
    miss(key, header.seq);
    return false;
  }
  watch_room();
  live_[key].push_back({position, header.seq, header.call});
  for (size_t at = 0; at + sizeof(uint64_t) <= body.size(); at += sizeof(uint64_t)) {
    const uint64_t word = object_key(body.subspan(at));
    if (word == key || !is_handle(word) || !live_.contains(word)) continue;
    users_[word].insert(key);
    uses_[key].insert(word);
  }
  return true;
}

// Added at once, since objects come and go meanwhile and the order matters: of no graph's until the
// graph is there. The first of them begins the capture; one whose end has failed is dropped by
// then.
bool ObjectLog::fold_captured(const EntryHeader& header, std::span<const std::byte> body,
                              std::span<const std::byte> payload) {
  if (live_.contains(kOpenCapture) && header.call == capture_begins_) forget_capture();
  if (!live_.contains(kOpenCapture)) capture_begins_ = header.call;
  const bool added = add(kOpenCapture, header, body, payload);
  if (!(header.flags & kCreates)) return added;
  const uint64_t graph = object_key(body);
  if (missing_.contains(kOpenCapture)) {
    forget_capture();
    miss(graph, header.seq);
    return false;
  }
  live_[graph] = std::move(live_[kOpenCapture]);
  live_.erase(kOpenCapture);
  for (const uint64_t used : uses_[kOpenCapture]) {
    users_[used].erase(kOpenCapture);
    users_[used].insert(graph);
  }
  uses_[graph] = std::move(uses_[kOpenCapture]);
  uses_.erase(kOpenCapture);
  return true;
}

void ObjectLog::forget_capture() {
  drop(kOpenCapture);
}

bool ObjectLog::is_used(uint64_t key) const {
  const auto users = users_.find(key);
  if (users == users_.end()) return false;
  if (Handle{key}.kind() != HandleKind::kModule) return !users->second.empty();
  return std::ranges::any_of(users->second, [&](uint64_t kernel) {
    const auto of_kernel = users_.find(kernel);
    return of_kernel != users_.end() && !of_kernel->second.empty();
  });
}

void ObjectLog::end(uint64_t key, const EntryHeader& header, std::span<const std::byte> body) {
  if (!live_.contains(key)) miss_no_more(key);
  if (!live_.contains(key) || ended_.contains(key)) return;
  if (is_used(key)) {
    add(key, header, body, {});
    ended_.insert(key);
    return;
  }
  drop(key);
}

// With what only this object has kept.
void ObjectLog::drop(uint64_t key) {
  miss_no_more(key);
  const auto found = live_.find(key);
  if (found == live_.end()) return;
  for (const Live& live : found->second) kill(live);
  live_.erase(found);
  ended_.erase(key);
  if (const auto users = users_.find(key); users != users_.end()) {
    const std::set<uint64_t> kernels = std::move(users->second);
    users_.erase(users);
    if (Handle{key}.kind() == HandleKind::kModule)
      for (const uint64_t kernel : kernels) drop(kernel);
  }
  const auto uses = uses_.find(key);
  if (uses == uses_.end()) return;
  const std::set<uint64_t> used = std::move(uses->second);
  uses_.erase(uses);
  for (const uint64_t other : used) {
    users_[other].erase(key);
    release(other);
  }
}

// What has ended goes with its last user; a module, when no graph uses a kernel of it any more.
void ObjectLog::release(uint64_t key) {
  if (ended_.contains(key) && !is_used(key)) return drop(key);
  const auto uses = uses_.find(key);
  if (uses == uses_.end() || Handle{key}.kind() != HandleKind::kKernel) return;
  for (const uint64_t module : std::set<uint64_t>(uses->second))
    if (ended_.contains(module) && !is_used(module)) drop(module);
}

// A setting that is set again to the same value adds nothing.
bool ObjectLog::repeats_last_setting(const std::vector<Live>& live, const EntryHeader& header,
                                     std::span<const std::byte> body) const {
  const auto last = std::find_if(live.rbegin(), live.rend(),
                                 [&](const Live& l) { return l.call == header.call; });
  if (last == live.rend() || header.flags & kHasPayload) return false;
  const auto old = body_of(*at(last->position));
  return old.size() == body.size() && std::equal(old.begin(), old.end(), body.begin());
}

void ObjectLog::forget(uint64_t seq) {
  const auto missed =
      std::ranges::find_if(missing_, [seq](const auto& one) { return one.second == seq; });
  if (missed != missing_.end()) return miss_no_more(missed->first);
  for (auto it = live_.begin(); it != live_.end(); ++it) {
    const auto found = std::find_if(it->second.begin(), it->second.end(),
                                    [&](const Live& l) { return l.seq == seq; });
    if (found == it->second.end()) continue;
    // A graph is forgotten with all that was captured for it.
    if (it->second.size() == 1 || Handle{it->first}.kind() == HandleKind::kGraph)
      return drop(it->first);
    kill(*found);
    it->second.erase(found);
    return;
  }
}

void ObjectLog::kill(const Live& live) {
  EntryHeader* header = at(live.position);
  header->flags |= kFoldedDead;
  live_bytes_ -= header->size;
  dead_bytes_ += header->size;
}

bool ObjectLog::append(const EntryHeader& header, std::span<const std::byte> body,
                       std::span<const std::byte> payload, uint64_t* position) {
  const uint64_t body_end = sizeof header + align_up(body.size(), kEntryAlign);
  const uint64_t size = body_end + align_up(payload.size(), kEntryAlign);
  if (size > UINT32_MAX) return false;
  if (is_to_be_compacted(size)) compact();
  if (!reserve(size, position)) {
    skip_dead();
    if (!reserve(size, position)) compact();
    if (!reserve(size, position)) return false;
  }
  EntryHeader* out = at(*position);
  *out = header;
  out->size = static_cast<uint32_t>(size);
  out->payload_position = body_end;
  auto* bytes = reinterpret_cast<std::byte*>(out);
  std::memcpy(bytes + sizeof header, body.data(), body.size());
  if (!payload.empty()) std::memcpy(bytes + body_end, payload.data(), payload.size());
  live_bytes_ += size;
  PYFT_FAULT("objects.before_publish");
  channel_.log().object_log_used.store(*position + size, std::memory_order_release);
  return true;
}

bool for_each_object(
    const LogView& log,
    FunctionRef<void(const EntryHeader&, std::span<const std::byte>, std::span<const std::byte>)>
        each,
    std::string* error) {
  const uint64_t begin = log.header->object_log_begin.load(std::memory_order_acquire);
  const uint64_t end = log.header->object_log_used.load(std::memory_order_acquire);
  uint64_t position = begin;
  while (position < end && end - begin <= log.object_log_bytes) {
    const uint64_t offset = position % log.object_log_bytes;
    const uint64_t limit = std::min(log.object_log_bytes - offset, end - position);
    EntryHeader header{};
    std::memcpy(&header, log.object_log + offset, std::min<uint64_t>(sizeof header, limit));
    const bool pad = header.call == static_cast<uint16_t>(Mark::kPad);
    if (header.size < (pad ? kEntryAlign : sizeof header) || header.size % kEntryAlign ||
        header.size > limit)
      break;
    const bool payload = header.flags & kHasPayload;
    const uint64_t body_end = payload ? header.payload_position : header.size;
    if (!pad && (body_end < sizeof header || body_end > header.size ||
                 (payload && header.payload_bytes > header.size - body_end)))
      break;
    const std::byte* at = log.object_log + offset;
    if (!pad && !(header.flags & kFoldedDead))
      each(header, {at + sizeof header, body_end - sizeof header},
           {at + body_end, payload ? header.payload_bytes : 0});
    position += header.size;
  }
  if (position == end) return true;
  *error = "the object log is damaged at position [" + std::to_string(position) + "]";
  return false;
}

}  // namespace pyft::ring
