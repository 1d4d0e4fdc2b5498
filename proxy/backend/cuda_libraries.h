// How cuda.cc fills the table from one library: what tests do where there is no driver.
#ifndef PYFT_BACKEND_CUDA_LIBRARIES_H_
#define PYFT_BACKEND_CUDA_LIBRARIES_H_

#include "api/object_types.h"
#include "backend/backend.h"

namespace pyft::backend {

// As the loader looks for it: LD_LIBRARY_PATH, which the agent has set to PyTorch's copies.
const char* library_file(Library library);
// Fills the functions of one library; those it lacks stay null. Empty, or why it does not load.
std::string fill_from(const char* file, Table* table, Library library);

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_CUDA_LIBRARIES_H_
