#include "client/device/device.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "api/commands.h"
#include "client/device/capture.h"
#include "client/device/past_caches.h"
#include "client/device/stream.h"
#include "client/process/handles.h"
#include "ring/hold.h"

namespace pyft::client {

static_assert(static_cast<size_t>(Api::kCount) <= ring::kCallCounters);

Device::Device(int ordinal, ring::ClientAttachment attachment)
    : memory(ring::kDeviceWindowBase + attachment.channel->device() * ring::kDeviceWindowBytes,
             ring::kDeviceWindowBytes, ring::kGranule, ring::kGranule / 2, 512),
      pinned(reinterpret_cast<uint64_t>(attachment.channel->pinned()),
             attachment.channel->pinned_bytes(), ring::kPageBytes, 0, ring::kPageBytes),
      ordinal_(ordinal),
      attachment_(std::move(attachment)),
      liveness_(*attachment_.channel, attachment_.agent.get()),
      writer_(*attachment_.channel, liveness_),
      window_base_(ring::kDeviceWindowBase +
                   attachment_.channel->device() * ring::kDeviceWindowBytes),
      null_stream_(std::make_unique<Stream>(*this, 0, ring::kNullStreamWord)),
      values_(new std::atomic<uint64_t>[ring::kCompletionWords]()) {
  streams_ = {null_stream_.get()};
}

cudaError_t Device::fail(ring::WaitStatus status) {
  if (status == ring::WaitStatus::kForked) return cudaErrorInitializationError;
  if (status == ring::WaitStatus::kTooLarge) {
    if (!too_large_.exchange(true))
      say("a command is larger than its log allows and returns [invalid argument]: "
          "PYFT_ARENA_MB and PYFT_RING_MB set the sizes");
    return cudaErrorInvalidValue;
  }
  if (status == ring::WaitStatus::kNoMemory) return cudaErrorMemoryAllocation;
  int none = 0;
  if (over_.compare_exchange_strong(none, cudaErrorDevicesUnavailable))
    say(liveness_.sentence(status));
  return static_cast<cudaError_t>(over_.load());
}

cudaError_t Device::health() const {
  if (const int over = over_.load(std::memory_order_relaxed)) return static_cast<cudaError_t>(over);
  const auto& control = attachment_.channel->control();
  return static_cast<cudaError_t>(control.sticky_error.load(std::memory_order_relaxed));
}

cudaError_t Device::late_error() {
  auto& late = attachment_.channel->control().late_error;
  if (!late.load(std::memory_order_relaxed)) [[likely]]
    return cudaSuccess;
  return static_cast<cudaError_t>(late.exchange(0));
}

static void fill_entry(ring::Entry& entry, Bytes body, Bytes tail, Bytes payload, PayloadCopy how) {
  std::memcpy(entry.body().data(), body.data(), body.size());
  if (!tail.empty()) std::memcpy(entry.body().data() + body.size(), tail.data(), tail.size());
  if (payload.empty()) return;
  if (how == PayloadCopy::kPastCaches)
    copy_past_caches(entry.payload().data(), payload.data(), payload.size());
  else
    std::memcpy(entry.payload().data(), payload.data(), payload.size());
}

inline cudaError_t Device::append(uint16_t call, uint16_t flags, Bytes body, Bytes tail,
                                  Bytes payload, PayloadCopy how, uint64_t* seq) {
  auto entry =
      writer_.begin(call, static_cast<uint32_t>(body.size() + tail.size()), flags, payload.size());
  if (!entry.ok()) return fail(entry.status());
  fill_entry(entry, body, tail, payload, how);
  const uint64_t appended = writer_.publish(std::move(entry));
  if (seq) *seq = appended;
  sent_.fetch_add(1, std::memory_order_relaxed);
  return cudaSuccess;
}

cudaError_t Device::send(uint16_t call, Bytes body, Bytes tail, Bytes payload, PayloadCopy how) {
  if (const cudaError_t error = health(); error != cudaSuccess) [[unlikely]]
    return error;
  if (ring::in_forked_child()) [[unlikely]]
    return cudaErrorInitializationError;
  if (captures.load(std::memory_order_relaxed)) [[unlikely]] {
    Reply reply;
    const cudaError_t error = this->call(call, body, &reply, tail, payload);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(reply.code);
  }
  const uint16_t flags = entry_flags(static_cast<Call>(call));
  if (!profiling::wanted(profiling::kDeviceWork)) [[likely]]
    return append(call, flags, body, tail, payload, how, nullptr);
  ProfiledEntry profile(profiled, static_cast<Call>(call), flags);
  uint64_t seq = 0;
  const cudaError_t error = append(call, flags | profile.flags(), body, tail, payload, how, &seq);
  if (error == cudaSuccess) profile.appended(seq, channel().control());
  return error;
}

cudaError_t Device::call(uint16_t call, Bytes body, Reply* reply, Bytes tail, Bytes payload) {
  if (const cudaError_t error = health(); error != cudaSuccess) return error;
  if (ring::in_forked_child()) return cudaErrorInitializationError;
  ring::ReplyTicket ticket(reply_slots_);
  uint16_t flags = entry_flags(static_cast<Call>(call));
  if (belongs_to_capture(*this, static_cast<Call>(call), body)) [[unlikely]]
    flags |= ring::kStreamCaptured;
  ProfiledEntry profile(profiled, static_cast<Call>(call), flags);
  auto entry = writer_.begin(call, static_cast<uint32_t>(body.size() + tail.size()),
                             flags | ring::kWantsReply | profile.flags(), payload.size());
  if (!entry.ok()) return fail(entry.status());
  fill_entry(entry, body, tail, payload, PayloadCopy::kCached);
  entry.set_reply_slot(ticket.slot());
  const uint64_t seq = writer_.publish(std::move(entry));
  profile.appended(seq, channel().control());
  sent_.fetch_add(1, std::memory_order_relaxed);
  const ring::WaitStatus status = ring::wait_reply(channel(), ticket.slot(), seq, liveness_);
  if (status != ring::WaitStatus::kOk) {
    ticket.abandon();
    return fail(status);
  }
  const ring::ReplySlot& slot = channel().slot(ticket.slot());
  reply->code = slot.code;
  std::memcpy(reply->values, slot.values, sizeof reply->values);
  const uint32_t bytes =
      slot.bytes < ring::kReplyInlineBytes ? slot.bytes : ring::kReplyInlineBytes;
  const auto* data = reinterpret_cast<const std::byte*>(slot.data);
  reply->data.assign(data, data + bytes);
  if (reply->code != 0 && (flags & ring::kCreates)) writer_.forget_creation(seq);
  return cudaSuccess;
}

// With several devices per process the calls are shared out to the first one attached.
void Device::count_local_calls() {
  for (int ordinal = 0; ordinal < ordinal_; ++ordinal)
    if (attached_or_null(ordinal)) return;
  uint64_t calls = 0;
  const std::lock_guard lock(count_mutex_);
  for (size_t i = 0; i < std::size(call_counts); ++i) {
    const uint64_t count = call_counts[i].load(std::memory_order_relaxed);
    calls += count;
    if (count) channel().call_counter(i).store(count, std::memory_order_relaxed);
  }
  const uint64_t sent = sent_.load(std::memory_order_relaxed);
  const uint64_t local = calls > sent ? calls - sent : 0;
  if (local > counted_local_) writer_.count_local_calls(local - counted_local_);
  counted_local_ = local > counted_local_ ? local : counted_local_;
}

ring::Appended Device::cut(Bytes scope, uint64_t expected_seq) {
  count_local_calls();
  return writer_.cut(scope, expected_seq);
}

bool Device::begin_hold() {
  if (!writer_.begin_hold()) return false;
  wake_agent();
  return true;
}

void Device::end_hold() {
  ring::end_hold(channel().control(), writer_.liveness());
}

// That it looks; if the agent has no time for it now, it looks later all the same.
void Device::wake_agent() const {
  const int agent = attachment_.agent.get();
  if (agent >= 0) ::send(agent, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Device::took_place(uint32_t rank, uint32_t size) {
  auto& word = channel().control().communicator;
  const uint64_t place = uint64_t{size} << 32 | rank;
  for (uint64_t before = word.load(); before >> 32 < size;) {
    if (!word.compare_exchange_weak(before, place)) continue;
    wake_agent();
    return;
  }
}

// What destructors and other threads still call gets the error that the driver gives at such a
// time.
void Device::goodbye() {
  count_local_calls();
  int none = 0;
  over_.compare_exchange_strong(none, cudaErrorCudartUnloading);
  writer_.goodbye();
}

uint64_t Device::next_value(uint32_t word) {
  return values_[word].fetch_add(1, std::memory_order_relaxed) + 1;
}

// Counted after the append, so that a fence appended in between can only be one too many.
void Device::touch(Stream& stream) {
  stream.work.fetch_add(1, std::memory_order_release);
  device_work_.fetch_add(1, std::memory_order_release);
}

// The null stream joins the others, so its work is that of the device.
uint64_t Device::work_of(const Stream& stream) const {
  const bool joins_all = &stream == null_stream_.get();
  return (joins_all ? device_work_ : stream.work).load(std::memory_order_acquire);
}

cudaError_t Device::record(uint64_t event, Stream& stream, uint64_t value, uint64_t* stream_value) {
  const std::lock_guard lock(stream.fence_mutex);
  const uint64_t work = work_of(stream);
  *stream_value = next_value(stream.word);
  const cudaError_t error =
      send(Call::cudaEventRecord, cmd::cudaEventRecord{event, stream.handle, value, *stream_value});
  touch(stream);
  // Only if no other thread appended meanwhile does this value cover all that was counted.
  if (error == cudaSuccess && work_of(stream) == work + 1) {
    stream.fence_value = *stream_value;
    stream.fenced_work = work + 1;
  }
  return error;
}

cudaError_t Device::fence(Stream& stream, uint64_t* value) {
  const std::lock_guard lock(stream.fence_mutex);
  const uint64_t work = work_of(stream);
  if (work != stream.fenced_work) {
    if (const cudaError_t error = health(); error != cudaSuccess) return error;
    const uint64_t next = next_value(stream.word);
    const auto appended = writer_.fence(stream.handle, stream.word, next);
    if (!appended) return fail(appended.status);
    stream.fence_value = next;
    stream.fenced_work = work;
  }
  *value = stream.fence_value;
  return cudaSuccess;
}

// A sticky error ends the wait: the device may never publish the word any more.
cudaError_t Device::wait(uint32_t word, uint64_t value) {
  if (reached(word, value)) return health();
  struct UntilSticky final : ring::Liveness {
    explicit UntilSticky(const Device& device) : device(device) {}
    ring::WaitStatus check() const override {
      if (device.health() != cudaSuccess) return ring::WaitStatus::kEnding;
      return device.liveness_.check();
    }
    const Device& device;
  } liveness(*this);
  const ring::WaitStatus status = ring::wait_word(channel(), word, value, liveness);
  if (status == ring::WaitStatus::kOk || status == ring::WaitStatus::kEnding) return health();
  return fail(status);
}

// The mark comes first: another thread that finds the value noted appends behind it.
void Device::observe(Stream& stream, uint64_t value) {
  if (stream.observed.load() == value) return;
  writer_.observed(stream.word, 0, value);
  stream.observed.store(value);
}

cudaError_t Device::synchronize(Stream& stream) {
  uint64_t value = 0;
  if (const cudaError_t error = fence(stream, &value); error != cudaSuccess) return error;
  if (value != stream.observed.load()) {
    if (const cudaError_t error = wait(stream.word, value); error != cudaSuccess) return error;
    observe(stream, value);
  }
  const cudaError_t error = health();
  return error != cudaSuccess ? error : late_error();
}

cudaError_t Device::synchronize_all() {
  std::vector<Stream*> streams;
  std::vector<std::pair<Stream*, uint64_t>> left;
  {
    const std::lock_guard lock(stream_mutex_);
    streams = streams_;
    left = left_;
  }
  // What a capture has written down is no work yet.
  std::erase_if(streams, [](const Stream* stream) { return stream->capture.load() != 0; });
  for (Stream* stream : streams) {
    uint64_t value = 0;  // fence all of them before waiting for the first
    if (const cudaError_t error = fence(*stream, &value); error != cudaSuccess) return error;
  }
  for (Stream* stream : streams)
    if (const cudaError_t error = synchronize(*stream); error != cudaSuccess) return error;
  for (const auto& [stream, value] : left) {
    if (const cudaError_t error = wait(stream->word, value); error != cudaSuccess) return error;
    observe(*stream, value);
  }
  end_left_streams();
  return health();
}

void Device::add_stream(Stream* stream) {
  const std::lock_guard lock(stream_mutex_);
  streams_.push_back(stream);
}

void Device::leave_stream(Stream* stream, uint64_t value) {
  const std::lock_guard lock(stream_mutex_);
  if (std::erase(streams_, stream)) left_.emplace_back(stream, value);
}

void Device::end_left_streams() {
  const std::lock_guard lock(stream_mutex_);
  std::erase_if(left_, [this](const auto& left) {
    const auto& [stream, value] = left;
    const bool done =
        !find_word_handle(stream->handle, HandleKind::kStream) && reached(stream->word, value);
    if (done) end_word(stream->handle);
    return done;
  });
}

void Device::add_global(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(globals_mutex_);
  globals_.emplace_back(address, bytes);
  any_globals_.store(true, std::memory_order_release);
}

void Device::remove_global(uint64_t address) {
  const std::lock_guard lock(globals_mutex_);
  std::erase_if(globals_, [address](const auto& global) { return global.first == address; });
}

bool Device::has_global(uint64_t address) {
  if (!any_globals_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(globals_mutex_);
  for (const auto& [start, bytes] : globals_)
    if (address - start < bytes) return true;
  return false;
}

void Device::watch_pinned(uint64_t refused) {
  const uint64_t limit = channel().pinned_bytes() >> 20, used = pinned_used >> 20;
  if (!limit) return;
  pinned_usage_.watch(
      refused ? limit : std::min(used, limit - 1), limit,
      "MB of page-locked host memory (cudaHostAlloc) of device [" + std::to_string(ordinal_) + "]",
      "free some, or set PYFT_PINNED_GB, at most [" + std::to_string(ring::kPinnedStride >> 30) +
          "]");
}

}  // namespace pyft::client
