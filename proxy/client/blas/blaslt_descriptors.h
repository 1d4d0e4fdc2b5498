// cuBLASLt's descriptors, layouts and preferences, in the storage of the program.
#ifndef PYFT_CLIENT_BLAS_BLASLT_DESCRIPTORS_H_
#define PYFT_CLIENT_BLAS_BLASLT_DESCRIPTORS_H_

#include <cstddef>
#include <cstdint>

#include "api/commands.h"
#include "client/blas/blas.h"

namespace pyft::client {

// Copies what a product is described by. False: something of it is no object of cuBLASLt's.
bool gather(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, LtProblem* out);
// nullptr: it is none.
const LtPreference* preference_of(cublasLtMatmulPreference_t preference);

// Of a descriptor: where alpha and beta lie, and how large they are.
int32_t pointer_mode(const LtMatmulDesc& desc);
size_t scale_bytes(const LtMatmulDesc& desc);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_BLAS_BLASLT_DESCRIPTORS_H_
