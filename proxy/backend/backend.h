// The server calls a table of function pointers and does not know what is behind it.
#ifndef PYFT_BACKEND_BACKEND_H_
#define PYFT_BACKEND_BACKEND_H_

#include <string>

#include "api/backend_table.h"

namespace pyft::backend {

// Fills the table from the soft GPU at `library` (a path), or from the vendor's libraries when it
// is null, empty or "cuda". Functions a library lacks stay null. False with one sentence when a
// library cannot be loaded.
bool load(const char* library, Table* table, std::string* error);

bool load_soft(const char* path, Table* table, std::string* error);
bool load_cuda(Table* table, std::string* error);

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_BACKEND_H_
