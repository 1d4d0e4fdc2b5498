// A variable and a constant of a module, as extensions have them: state that is in no allocation.
#include <cstdint>

__device__ uint64_t counter = 7;
__constant__ uint64_t step_width = 1;

extern "C" __global__ void count(uint64_t* out) {
  counter += step_width;
  *out = counter;
}
