// C ABI of libpyft_native.so, the one door from Python to the ring (pyft/_native/__init__.py).
// Functions that can fail write one sentence into `error`. A trace belongs to one thread.
#ifndef PYFT_NATIVE_H_
#define PYFT_NATIVE_H_

#include <cstddef>
#include <cstdint>

#define PYFT_NATIVE_EXPORT extern "C" __attribute__((visibility("default")))

struct PyftTrace;

struct PyftTraceEntry {
  uint64_t seq, time_ns, position, payload_bytes;
  uint32_t size, thread, reply_slot;
  uint16_t call, flags;
  uint32_t payload_overwritten;
  uint32_t forced;  // of a cut: not made after a step
  uint32_t step;    // of a cut: steps of the client so far
};
static_assert(sizeof(PyftTraceEntry) == 64);

struct PyftTraceInfo {
  uint64_t ring_bytes, arena_bytes, object_log_bytes;
  uint64_t appended, oldest, committed, arena_head, cuts, forced_cuts, entries_total, local_calls;
  uint64_t space_waits, object_log_lost, live_objects, live_object_bytes;
  uint32_t client_pid, device;
};
static_assert(sizeof(PyftTraceInfo) == 128);

// Sizes and initialises a channel's memory objects; 0 or an errno.
PYFT_NATIVE_EXPORT int pyft_channel_format(int log_fd, int control_fd, int bounce_fd,
                                           uint64_t ring_bytes, uint64_t object_log_bytes,
                                           uint64_t arena_bytes, uint64_t bounce_bytes,
                                           uint32_t client_pid, uint32_t device, uint32_t epoch);
// sizeof AttachRequest, AttachReply, LogHeader's last known field, ControlPage, kControlBytes.
PYFT_NATIVE_EXPORT void pyft_layout_sizes(uint64_t out[5]);

// The digest of some bytes, as stores have it (checkpoint/digest/digest.h), without a secret seed.
PYFT_NATIVE_EXPORT void pyft_digest(const void* data, uint64_t bytes, uint64_t out[2]);

// A saved log file or a descriptor of a live log object. nullptr on failure.
PYFT_NATIVE_EXPORT PyftTrace* pyft_trace_open(const char* path, char* error, size_t error_bytes);
PYFT_NATIVE_EXPORT PyftTrace* pyft_trace_open_fd(int fd, char* error, size_t error_bytes);
PYFT_NATIVE_EXPORT void pyft_trace_close(PyftTrace* trace);
PYFT_NATIVE_EXPORT void pyft_trace_info(PyftTrace* trace, PyftTraceInfo* out);
// 1: an entry; 0: the end (a live log may have more later); -1: damaged, see pyft_trace_error.
PYFT_NATIVE_EXPORT int pyft_trace_next(PyftTrace* trace, PyftTraceEntry* out);
// The same over the live entries of the object log, from its beginning.
PYFT_NATIVE_EXPORT int pyft_trace_next_object(PyftTrace* trace, PyftTraceEntry* out);
// Skips up to `count` entries; returns how many.
PYFT_NATIVE_EXPORT uint64_t pyft_trace_skip(PyftTrace* trace, uint64_t count);
PYFT_NATIVE_EXPORT void pyft_trace_rewind(PyftTrace* trace);
PYFT_NATIVE_EXPORT const char* pyft_trace_error(PyftTrace* trace);
// Text of the entry that the last call of next returned; valid until the next call.
PYFT_NATIVE_EXPORT const char* pyft_trace_text(PyftTrace* trace, int deterministic);

#endif  // PYFT_NATIVE_H_
