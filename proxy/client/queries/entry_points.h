// Functions by name, for programs that look driver functions up.
#ifndef PYFT_CLIENT_QUERIES_ENTRY_POINTS_H_
#define PYFT_CLIENT_QUERIES_ENTRY_POINTS_H_

#include <cstdint>

namespace pyft::client {

struct EntryPoint {
  const char* name;
  void (*function)();
};

// Generated, sorted by name.
extern const EntryPoint kEntryPoints[];
extern const unsigned kEntryPointCount;

// Our function for a name as programs ask for it: "cuMemAlloc" finds cuMemAlloc_v2, and with
// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM a variant whose null stream is the thread's own.
// nullptr: none; the vendor's function is never answered instead.
void* entry_point(const char* name, uint64_t flags);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_QUERIES_ENTRY_POINTS_H_
