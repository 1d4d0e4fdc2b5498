// run_sass FILE: runs the kernel in FILE on the soft GPU's executor and writes its memory to
// standard output. The tests in test_sass.py assemble these files.
//
// FILE: the Header, then text, the area of kernel parameters, memory.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/address_space.h"
#include "core/kernel.h"

namespace {

struct Header {
  uint32_t text_bytes, param_bytes, memory_bytes, shared_bytes, local_bytes;
  uint32_t blocks, threads;
  uint32_t entry;
};

constexpr uint64_t kMemoryAddress = 0x10000000000;  // as in test_sass.py

std::vector<uint8_t> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

softgpu::Fault run(const std::vector<uint8_t>& file, const Header& header, uint8_t* memory) {
  const uint8_t* text = file.data() + sizeof header;
  const uint8_t* params = text + header.text_bytes;
  std::memcpy(memory, params + header.param_bytes, header.memory_bytes);
  softgpu::Kernel kernel;
  kernel.name = "sass";
  kernel.text = {text, header.text_bytes};
  kernel.entry = header.entry;
  kernel.static_shared_bytes = header.shared_bytes;
  kernel.local_bytes = header.local_bytes;
  kernel.param_bytes = header.param_bytes;
  // Banks 2 and 3 hold the same bytes as the parameters.
  kernel.banks[2] = kernel.banks[3] = {params, header.param_bytes};
  softgpu::Launch launch;
  launch.kernel = &kernel;
  launch.grid = {header.blocks, 1, 1};
  launch.block = {header.threads, 1, 1};
  launch.params.assign(params, params + header.param_bytes);
  softgpu::AddressSpace space;
  space.add(kMemoryAddress, header.memory_bytes);
  return softgpu::run_kernel(launch, {}, space, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::vector<uint8_t> file = read_file(argv[1]);
  Header header;
  std::memcpy(&header, file.data(), sizeof header);
  void* memory =
      mmap(reinterpret_cast<void*>(kMemoryAddress), header.memory_bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (memory == MAP_FAILED) return 3;
  const softgpu::Fault fault = run(file, header, static_cast<uint8_t*>(memory));
  if (fault) std::fprintf(stderr, "%s\n", fault.message.c_str());
  std::fwrite(memory, 1, header.memory_bytes, stdout);
  return fault ? 1 : 0;
}
