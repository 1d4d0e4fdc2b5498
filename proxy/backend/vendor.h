// The vendor's declarations of everything the server calls.
#ifndef PYFT_BACKEND_VENDOR_H_
#define PYFT_BACKEND_VENDOR_H_

#include <cublasLt.h>
#include <cublas_api.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#endif  // PYFT_BACKEND_VENDOR_H_
