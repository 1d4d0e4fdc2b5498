// Products with a handle of the server's own, as those of the program are made.
#ifndef PYFT_SERVER_HANDLERS_BLAS_H_
#define PYFT_SERVER_HANDLERS_BLAS_H_

#include "server/handlers/handlers.h"

namespace pyft::server {

// Gives a handle the modes that `want` has; `have`: those that it has so far.
void set_blas_modes(const backend::Table& api, cublasHandle_t blas, const BlasState& want,
                    BlasState* have);
// False: the library has not been loaded, or lacks a call.
bool has_light_products(const backend::Table& api);
// The code of the library. Precondition: it has them.
int light_product(const backend::Table& api, cublasLtHandle_t blas, const cmd::cublasLtMatmul& c,
                  const LtProblem& problem, CUstream stream);

}  // namespace pyft::server

#endif  // PYFT_SERVER_HANDLERS_BLAS_H_
