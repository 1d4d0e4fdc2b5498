// Finds the sm_75 machine code in what CUDA calls a fat binary.
#ifndef SOFTGPU_LOADER_FATBIN_H_
#define SOFTGPU_LOADER_FATBIN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace softgpu {

// `image` is one of: a fat binary wrapper, a fat binary, a plain cubin. Fills `cubin` with the ELF
// image of the best entry for compute capability 7.5 and returns an empty string, else one
// sentence. The interface gives no length: what the headers say is tried, and memory that is not
// there is an error like any other.
std::string extract_cubin(const void* image, std::vector<uint8_t>* cubin);

}  // namespace softgpu

#endif  // SOFTGPU_LOADER_FATBIN_H_
