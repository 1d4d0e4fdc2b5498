// The table of the real backend, filled from the vendor's libraries: each record names a function
// that its library has. The driver's comes from a GPU's machine only, so its absence is tested.
#include <dlfcn.h>

#include "backend/cuda_libraries.h"
#include "backend/cupti.h"
#include "check.h"

using namespace pyft::backend;  // NOLINT: a test

namespace {

// Functions that only newer or older versions of a library have.
std::string empty_slots(Table& table, Library wanted) {
  std::string names;
  for_each_function(table, [&](const char* name, Library library, void** slot) {
    if (library == wanted && !*slot) names += std::string(" ") + name;
  });
  return names;
}

void check_library(Library library) {
  Table table;
  CHECK_EQ(fill_from(library_file(library), &table, library), "");
  CHECK_EQ(empty_slots(table, library), "");
}

}  // namespace

TEST(runtime) {
  check_library(Library::cudart);
}
TEST(blas) {
  check_library(Library::cublas);
  check_library(Library::cublasLt);
}
TEST(collectives) {
  check_library(Library::nccl);
}
TEST(libraries_of_objects) {
  for (int i = static_cast<int>(Library::nccl) + 1; i < kLibraryCount; ++i)
    check_library(static_cast<Library>(i));
}

TEST(profiles) {
  Cupti cupti;
  CHECK_EQ(load_cupti("cuda", &cupti), "");
  CHECK(cupti.next_record != nullptr);
}

TEST(a_missing_library_is_named) {
  Table table;
  const std::string why = fill_from("libnothing.so.1", &table, Library::cufft);
  CHECK(why.find("[libnothing.so.1] does not load: ") == 0);
}

TEST(without_a_driver_the_error_says_what_to_do) {
  if (dlopen("libcuda.so.1", RTLD_NOW)) return;  // a machine with a GPU
  Table table;
  std::string error;
  CHECK(!load_cuda(&table, &error));
  CHECK(error.find("no CUDA driver: use soft:N ([libcuda.so.1] does not load: ") == 0);
  // What needs a library of objects later gets the sentence of that library.
  CHECK_EQ(table.open_library("cufft"), "");
  CHECK(table.cufftCreate != nullptr);
  CHECK(table.why_missing("cuInit").find("[libcuda.so.1] does not load") == 0);
  CHECK_EQ(table.why_missing("cufftCreate"), "[libcufft.so.12] lacks it");
}

CHECK_MAIN
