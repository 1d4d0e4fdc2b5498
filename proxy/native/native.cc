#include "native/native.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/printer.h"
#include "checkpoint/digest/digest.h"
#include "ring/attach.h"
#include "ring/channel.h"
#include "ring/log_file.h"
#include "ring/object_log.h"
#include "ring/reader.h"

namespace ring = pyft::ring;

namespace {

struct ObjectEntry {
  ring::EntryHeader header;
  std::vector<std::byte> body;
};

}  // namespace

struct PyftTrace {
  explicit PyftTrace(std::unique_ptr<ring::LogFile> log_file)
      : file(std::move(log_file)), reader(ring::Reader::trace(file->view())) {}

  std::unique_ptr<ring::LogFile> file;
  ring::Reader reader;
  ring::EntryView entry;
  std::vector<ObjectEntry> objects;
  bool objects_loaded = false;
  size_t next_object = 0;
  std::string text, error;
};

namespace {

PyftTrace* open_trace(std::unique_ptr<ring::LogFile> file, const std::string& problem, char* error,
                      size_t error_bytes) {
  if (file) return std::make_unique<PyftTrace>(std::move(file)).release();
  std::snprintf(error, error_bytes, "%s", problem.c_str());
  return nullptr;
}

// Zeros if it is no cut.
ring::CutMark cut_of(const ring::EntryView& entry) {
  ring::CutMark cut{};
  if (entry.header.call != static_cast<uint16_t>(ring::Mark::kCut)) return cut;
  if (entry.body.size() >= sizeof cut) std::memcpy(&cut, entry.body.data(), sizeof cut);
  return cut;
}

PyftTraceEntry summary(const ring::EntryView& entry) {
  const ring::EntryHeader& h = entry.header;
  const ring::CutMark cut = cut_of(entry);
  return {h.seq,        h.time_ns, entry.position, h.payload_bytes,           h.size,     h.thread,
          h.reply_slot, h.call,    h.flags,        entry.payload_overwritten, cut.forced, cut.step};
}

// Copies of the bodies: the caller steps through them while a live client may be compacting.
bool load_objects(PyftTrace& trace) {
  trace.objects_loaded = true;
  return ring::for_each_object(
      trace.file->view(),
      [&](const ring::EntryHeader& header, std::span<const std::byte> body,
          std::span<const std::byte>) {
        trace.objects.push_back({header, {body.begin(), body.end()}});
      },
      &trace.error);
}

}  // namespace

int pyft_channel_format(int log_fd, int control_fd, int bounce_fd, uint64_t ring_bytes,
                        uint64_t object_log_bytes, uint64_t arena_bytes, uint64_t bounce_bytes,
                        uint32_t client_pid, uint32_t device, uint32_t epoch) {
  ring::ChannelShape shape;
  shape.ring_bytes = ring_bytes;
  shape.object_log_bytes = object_log_bytes;
  shape.arena_bytes = arena_bytes;
  shape.bounce_bytes = bounce_bytes;
  shape.client_pid = client_pid;
  shape.device = device;
  shape.epoch = epoch;
  return ring::format_channel(log_fd, control_fd, bounce_fd, shape);
}

void pyft_layout_sizes(uint64_t out[5]) {
  out[0] = sizeof(ring::AttachRequest);
  out[1] = sizeof(ring::AttachReply);
  out[2] = sizeof(ring::LogHeader);
  out[3] = sizeof(ring::ControlPage);
  out[4] = ring::kControlBytes;
}

void pyft_digest(const void* data, uint64_t bytes, uint64_t out[2]) {
  const ring::Digest found = pyft::checkpoint::digest(data, bytes, pyft::checkpoint::DigestKey(0));
  out[0] = found.low;
  out[1] = found.high;
}

PyftTrace* pyft_trace_open(const char* path, char* error, size_t error_bytes) {
  std::string problem;
  auto file = ring::LogFile::open(path, &problem);
  return open_trace(std::move(file), problem, error, error_bytes);
}

PyftTrace* pyft_trace_open_fd(int fd, char* error, size_t error_bytes) {
  std::string problem;
  auto file = ring::LogFile::map(fd, &problem);
  return open_trace(std::move(file), problem, error, error_bytes);
}

void pyft_trace_close(PyftTrace* trace) {
  std::unique_ptr<PyftTrace> owned(trace);
}

void pyft_trace_info(PyftTrace* trace, PyftTraceInfo* out) {
  const ring::LogView& log = trace->file->view();
  const ring::LogHeader& h = *log.header;
  *out = {log.ring_bytes,
          log.arena_bytes,
          log.object_log_bytes,
          h.appended,
          h.oldest,
          h.committed,
          h.arena_head,
          h.cuts,
          h.forced_cuts,
          h.entries_total,
          h.local_calls,
          h.space_waits,
          h.object_log_lost,
          0,
          0,
          h.client_pid,
          h.device};
  std::string problem;
  ring::for_each_object(
      log,
      [&](const ring::EntryHeader& header, std::span<const std::byte>, std::span<const std::byte>) {
        ++out->live_objects;
        out->live_object_bytes += header.size;
      },
      &problem);
}

int pyft_trace_next(PyftTrace* trace, PyftTraceEntry* out) {
  switch (trace->reader.next(&trace->entry)) {
    case ring::Reader::Next::kEntry:
      *out = summary(trace->entry);
      return 1;
    case ring::Reader::Next::kEmpty:
      return 0;
    case ring::Reader::Next::kDamaged:
      break;
  }
  trace->error = trace->reader.error();
  return -1;
}

int pyft_trace_next_object(PyftTrace* trace, PyftTraceEntry* out) {
  if (!trace->objects_loaded && !load_objects(*trace)) return -1;
  if (trace->next_object == trace->objects.size()) return 0;
  const ObjectEntry& object = trace->objects[trace->next_object++];
  trace->entry = {};
  trace->entry.header = object.header;
  trace->entry.body = object.body;
  *out = summary(trace->entry);
  return 1;
}

uint64_t pyft_trace_skip(PyftTrace* trace, uint64_t count) {
  uint64_t skipped = 0;
  while (skipped < count && trace->reader.next(&trace->entry) == ring::Reader::Next::kEntry)
    ++skipped;
  return skipped;
}

void pyft_trace_rewind(PyftTrace* trace) {
  trace->reader = ring::Reader::trace(trace->file->view());
}

const char* pyft_trace_error(PyftTrace* trace) {
  return trace->error.c_str();
}

const char* pyft_trace_text(PyftTrace* trace, int deterministic) {
  trace->text = pyft::print_entry(trace->entry.header, trace->entry.body, deterministic != 0);
  return trace->text.c_str();
}
