// Executes a product for the second time: with handle and workspace of the server's own, and other
// places for what it reads and writes.
#ifndef PYFT_SERVER_DMR_AGAIN_H_
#define PYFT_SERVER_DMR_AGAIN_H_

#include "server/dmr/products.h"

namespace pyft::server::dmr {

// By the order of Product::inputs.
struct Places {
  std::array<uint64_t, 4> inputs{};
  uint64_t output = 0, workspace = 0;
};
// Of the first execution; it needs a workspace of so many bytes.
Places places_of(const Product& product);
uint64_t workspace_bytes(const EntryHeader& header, Body body);

class Again {
 public:
  explicit Again(const backend::Table& api) : api_(api) {}
  // Precondition: read_product() gives `product` for this entry. The library's code, not 0 if it
  // does not take the product. The dispatch thread.
  int execute(const EntryHeader& header, Body body, const Product& product, const Places& at,
              CUstream stream);

 private:
  template <class Command>
  int gemm(Body body, const Places& at, CUstream stream);
  int light(Body body, const Product& product, const Places& at, CUstream stream);
  bool ready();

  const backend::Table& api_;
  cublasHandle_t handle_ = nullptr;
  BlasState modes_{.atomics_mode = CUBLAS_ATOMICS_ALLOWED};  // those that a new handle has
};

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_AGAIN_H_
