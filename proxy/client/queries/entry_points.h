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

// What answers for a name as programs ask for it: the newest function that is not newer than that
// version of CUDA. "cuMemAlloc" of 12000 is cuMemAlloc_v2. With
// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM it is a variant whose null stream is the thread's
// own. The vendor's function is never answered instead.
struct Found {
  void* function;  // nullptr: none
  bool too_old;    // there is one, but not in that version
};
Found entry_point(const char* name, unsigned version, uint64_t flags);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_QUERIES_ENTRY_POINTS_H_
