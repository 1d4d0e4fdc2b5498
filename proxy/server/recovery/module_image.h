// Which variables a module has. Drivers tell where a variable lies whose name one knows, but not
// the names; those are in the code that was loaded.
#ifndef PYFT_SERVER_RECOVERY_MODULE_IMAGE_H_
#define PYFT_SERVER_RECOVERY_MODULE_IMAGE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pyft::server {

// Names of the variables and constants in an image as cuModuleLoadData takes it: a cubin or a
// fatbin, whose entries may be compressed. False and why when it has other code, such as PTX, or is
// damaged; the image comes from a client.
bool variable_names(std::span<const std::byte> image, std::vector<std::string>* names,
                    std::string* why);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_MODULE_IMAGE_H_
