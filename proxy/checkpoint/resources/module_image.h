// What drivers do not tell of a module, found in the code that was loaded: the names of its
// variables, and before CUDA 12.4 where a kernel's parameters lie.
#ifndef PYFT_CHECKPOINT_RESOURCES_MODULE_IMAGE_H_
#define PYFT_CHECKPOINT_RESOURCES_MODULE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pyft::checkpoint {

// Names of the variables and constants in an image as cuModuleLoadData takes it: a cubin or a
// fatbin, whose entries may be compressed. False and why when it has other code, such as PTX, or is
// damaged; the image comes from a client.
bool variable_names(std::span<const std::byte> image, std::vector<std::string>* names,
                    std::string* why);

struct KernelParameter {
  uint16_t offset = 0, bytes = 0;
};
using KernelParameters = std::map<std::string, std::vector<KernelParameter>, std::less<>>;

// The parameters of each kernel of an image, in their order. False and why as above.
bool kernel_parameters(std::span<const std::byte> image, KernelParameters* kernels,
                       std::string* why);

// Whether a variable is an object of an empty class of thrust, cub or libcu++, such as
// thrust::placeholders::_1. They are all but two of the variables in PyTorch's wheel, have no
// state, and may lie elsewhere in a new server.
bool is_empty_object(std::string_view name, uint64_t bytes);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RESOURCES_MODULE_IMAGE_H_
