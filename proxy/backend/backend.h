// The server calls a table of function pointers and does not know what is behind it.
#ifndef PYFT_BACKEND_BACKEND_H_
#define PYFT_BACKEND_BACKEND_H_

#include <string>

#include "api/backend_table.h"

namespace pyft::backend {

// What a backend may offer beside the vendor's interface; null where it does not.
struct Extras {
  // Like cuLaunchHostFunc, for functions that never block and call no backend function.
  int (*publish)(void* stream, void (*function)(void*), void* data) = nullptr;
  // Executes one ready piece of the device's work in the calling thread; 0: nothing is ready. A
  // thread that has called it calls it until 0 before it sleeps.
  int (*work)(int device) = nullptr;
  // Snapshots and restores of memory: softgpu.h describes them. All are there, or none.
  const void* (*view)(unsigned long long address, unsigned long long bytes) = nullptr;
  int (*untouched)(unsigned long long address, unsigned long long bytes) = nullptr;
  int (*module_variables)(void* module, unsigned long long* address,
                          unsigned long long* bytes) = nullptr;
  int (*kernel_heap)(int device, int create, unsigned long long* address,
                     unsigned long long* bytes) = nullptr;
  int (*place)(int device, unsigned long long address) = nullptr;
};

enum class Kind {
  kVendor,  // a real GPU, which works by itself
  kSoft,    // executes its work in this process, and calls functions in its streams at no cost
};

struct Backend {
  Kind kind = Kind::kVendor;
  Table table{};
  Extras extras{};
  bool is_soft() const { return kind == Kind::kSoft; }
};

// Fills the table from the soft GPU at `library` (a path), or from the vendor's libraries when it
// is null, empty or "cuda". Functions a library lacks stay null. False with one sentence when a
// library cannot be loaded.
bool load(const char* library, Backend* out, std::string* error);

bool load_soft(const char* path, Table* table, Extras* extras, std::string* error);
bool load_cuda(Table* table, std::string* error);

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_BACKEND_H_
