// Programs built with CUDA 12.
#ifndef PYFT_CLIENT_QUERIES_CUDA12_H_
#define PYFT_CLIENT_QUERIES_CUDA12_H_

namespace pyft::client {

// Whether the program has loaded the runtime of CUDA 12. Few functions of it have other parameters
// than in CUDA 13, by the same name.
bool built_with_cuda_12();

}  // namespace pyft::client

#endif  // PYFT_CLIENT_QUERIES_CUDA12_H_
