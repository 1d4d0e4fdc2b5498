// The vendor's declarations of everything the server calls.
#ifndef PYFT_BACKEND_VENDOR_H_
#define PYFT_BACKEND_VENDOR_H_

#include <cublasLt.h>
#include <cublas_api.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <flexccl.h>  // NCCL's types and prototypes

#endif  // PYFT_BACKEND_VENDOR_H_
