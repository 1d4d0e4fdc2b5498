// cuBLAS's header without the half-precision classes it drags in: those need C++ library headers
// that no pip package of the toolkit we build with has, and cuBLAS only ever points to them.
#ifndef SOFTGPU_API_BLAS_CUBLAS_TYPES_H_
#define SOFTGPU_API_BLAS_CUBLAS_TYPES_H_

#ifndef __CUDA_FP16_H__
#define __CUDA_FP16_H__
struct __half;
#endif
#ifndef __CUDA_BF16_H__
#define __CUDA_BF16_H__
struct __nv_bfloat16;
#endif

#include <cublas_api.h>

#endif  // SOFTGPU_API_BLAS_CUBLAS_TYPES_H_
