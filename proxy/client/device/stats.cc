// What the Python hooks call, and the counters they and the agent read.
#include <cstring>

#include "client/device/capture.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

template <class Use>
int for_each_device(Use use) {
  int failures = 0;
  if (usable() != cudaSuccess) return 0;
  for (int ordinal = 0; ordinal < kMaxDevices; ++ordinal)
    if (Device* device = attached_or_null(ordinal))
      if (!use(*device)) ++failures;
  return failures;
}

}  // namespace

// A cut on every attached device: what lies before it need not be replayed once it is committed.
// Inside a stream capture there is none: what was captured is not done. Returns the number of
// devices where it failed.
PYFT_API int pyft_cut() {
  return for_each_device([](Device& d) { return device_captures(d) || d.cut(); });
}

// Number of the entry a device of this process would append next; 0 when it is not attached, or
// when its next cut is not snapshotted and nothing needs to know what is live.
PYFT_API uint64_t pyft_next_seq(int ordinal) {
  if (usable() != cudaSuccess) return 0;
  Device* device = attached_or_null(ordinal);
  if (!device || !device->writer().takes_snapshots() || !device->writer().next_cut_counts())
    return 0;
  return device->writer().next_seq();
}

// A cut on one device that says what is live there: `scope` is a ring::CutScope with its ranges,
// found out when `expected_seq` was the next entry; or nothing, where that is 0. Returns 0; 1 when
// it failed; 2, a few times, when another thread has appended something since: there is no cut yet.
PYFT_API int pyft_cut_scope(int ordinal, const void* scope, uint64_t bytes, uint64_t expected_seq) {
  Device* device = attached_or_null(ordinal);
  if (!device) return 1;
  if (device_captures(*device)) return 0;
  const auto* data = static_cast<const std::byte*>(scope);
  const ring::Appended cut = device->cut({data, static_cast<size_t>(bytes)}, expected_seq);
  if (!cut) return 1;
  return cut.seq ? 0 : 2;
}

// Waits behind the last cut, if the agent wants the program to stand still there. All devices of a
// process stand behind theirs before it waits for one. Returns how many it has waited for.
PYFT_API int pyft_hold() {
  bool held[kMaxDevices] = {};
  if (for_each_device([&](Device& d) {
        held[d.ordinal()] = !device_captures(d) && d.begin_hold();
        return !held[d.ordinal()];
      }) == 0)
    return 0;
  return for_each_device([&](Device& d) {
    if (held[d.ordinal()]) d.end_hold();
    return !held[d.ordinal()];
  });
}

// Later entries wait until the last cut is safe.
PYFT_API int pyft_gate() {
  return for_each_device([](Device& d) { return device_captures(d) || d.writer().gate(); });
}

// Text "name count\n" for every function called so far, then "total: …". Returns the length it
// needs; writes at most `bytes` with a final NUL.
PYFT_API size_t pyft_stats(char* out, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < static_cast<size_t>(Api::kCount); ++i)
    if (const uint64_t count = call_counts[i].load(std::memory_order_relaxed))
      text += std::string(api_name(static_cast<Api>(i))) + " " + std::to_string(count) + "\n";
  if (out && bytes) {
    const size_t n = text.size() < bytes - 1 ? text.size() : bytes - 1;
    std::memcpy(out, text.data(), n);
    out[n] = 0;
  }
  return text.size() + 1;
}
