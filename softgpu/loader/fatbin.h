// Finds the sm_75 machine code in what CUDA calls a fat binary.
#ifndef SOFTGPU_LOADER_FATBIN_H_
#define SOFTGPU_LOADER_FATBIN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace softgpu {

// `image` is one of: a fat binary wrapper, a fat binary, a plain cubin. Fills `cubin` with the ELF
// image of the best entry for compute capability 7.5 and returns an empty string, else one
// sentence. Trusts the sizes in the headers, as the interface gives no length.
std::string extract_cubin(const void* image, std::vector<uint8_t>* cubin);

}  // namespace softgpu

#endif  // SOFTGPU_LOADER_FATBIN_H_
