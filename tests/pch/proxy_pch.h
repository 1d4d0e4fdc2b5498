// What most sources of client and server include; see standard_pch.h.
#include "standard_pch.h"

#include <cublasLt.h>
#include <cublas_api.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
