#include "fault/written.h"

#include "memory/pointers.h"

namespace softgpu {
namespace {

thread_local WrittenBlocks* wanted_here = nullptr;

}  // namespace

WrittenBlocks::WrittenBlocks(bool wanted) : before_(wanted_here) {
  wanted_here = wanted ? this : nullptr;
}

WrittenBlocks::~WrittenBlocks() {
  wanted_here = before_;
}

void about_to_write(uint64_t address, uint64_t bytes, uint64_t count, uint64_t step) {
  if (!wanted_here || !bytes || !count) return;
  WrittenBlock block{address, bytes, count, step, {}};
  if (step == bytes) block = {address, bytes * count, 1, 0, {}};
  const uint64_t extent = (block.count - 1) * block.step + block.bytes;
  block.before.reserve(block.size());
  const bool reached = pointers().with_mapped(address, extent, [&] {
    for (uint64_t i = 0; i < block.count; ++i) {
      const auto* from = reinterpret_cast<const uint8_t*>(address + i * block.step);
      block.before.insert(block.before.end(), from, from + block.bytes);
    }
  });
  if (reached) wanted_here->all_.push_back(std::move(block));
}

}  // namespace softgpu
