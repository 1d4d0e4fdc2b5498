// Which variables a module has. Drivers tell where a variable lies whose name one knows, but not
// the names; those are in the code that was loaded.
#ifndef PYFT_CHECKPOINT_RESOURCES_MODULE_IMAGE_H_
#define PYFT_CHECKPOINT_RESOURCES_MODULE_IMAGE_H_

#include <cstddef>
#include <cstdint>
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

// Whether a variable is an object of an empty class of thrust, cub or libcu++, such as
// thrust::placeholders::_1. They are all but two of the variables in PyTorch's wheel, have no
// state, and may lie elsewhere in a new server.
bool is_empty_object(std::string_view name, uint64_t bytes);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RESOURCES_MODULE_IMAGE_H_
