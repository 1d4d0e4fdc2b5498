// The vendor's declarations of everything we export.
#ifndef PYFT_CLIENT_PROCESS_VENDOR_H_
#define PYFT_CLIENT_PROCESS_VENDOR_H_

#include <cublasLt.h>
#include <cublas_api.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <flexccl.h>  // NCCL's types and prototypes

#define PYFT_API extern "C" __attribute__((visibility("default")))

#endif  // PYFT_CLIENT_PROCESS_VENDOR_H_
