// What a stream can be asked to do, as a value: executed once when it is put on a stream, kept in a
// graph node when the stream is being captured, and executed again at each launch of that graph.
#ifndef SOFTGPU_STREAM_OPERATION_H_
#define SOFTGPU_STREAM_OPERATION_H_

#include <driver_types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/kernel.h"

namespace softgpu {

class Graph;
class GraphMemory;
struct Function;

struct EmptyOperation {};

struct KernelOperation {
  std::shared_ptr<const Launch> launch;
  const Function* function = nullptr;
  int device = 0;
  int priority = 0;
};

// `slices` rectangles of `rows` rows; a plain copy has one row.
struct CopyShape {
  uint64_t width = 0, rows = 1;
  uint64_t dst_pitch = 0, src_pitch = 0;
  uint64_t slices = 1, dst_slice = 0, src_slice = 0;
  bool empty() const { return !width || !rows || !slices; }
  uint64_t dst_span() const { return (slices - 1) * dst_slice + (rows - 1) * dst_pitch + width; }
  uint64_t src_span() const { return (slices - 1) * src_slice + (rows - 1) * src_pitch + width; }
};

struct CopyOperation {
  uint64_t dst = 0, src = 0;
  CopyShape shape;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  bool dst_known = false, src_known = false;  // device or pinned: must be mapped when it is done
};

// Fills rows with a pattern of 1, 2 or 4 bytes; `width` counts elements.
struct FillShape {
  uint64_t width = 0, rows = 1, pitch = 0;
  uint32_t value = 0, element_bytes = 1;
  uint64_t span() const { return (rows - 1) * pitch + width * element_bytes; }
};

struct FillOperation {
  uint64_t dst = 0;
  FillShape shape;
};

struct HostOperation {
  void (*function)(void*) = nullptr;
  void* data = nullptr;
};

// A call of a library (cuBLAS) or of the program's that runs where kernels run.
struct LibraryOperation {
  std::string name;
  std::function<Fault()> run;
  bool computes = false;  // a kernel to the program, which profilers show
};

// A word in memory that the stream waits for.
struct PollOperation {
  std::function<bool()> reached;  // or it never will be, as `end` tells then
  std::function<Fault()> end;
};

struct RecordOperation {
  const void* event = nullptr;
};

struct WaitOperation {
  const void* event = nullptr;
};

struct ChildOperation {
  std::shared_ptr<Graph> graph;
};

struct AllocOperation {
  std::shared_ptr<GraphMemory> memory;
  uint64_t bytes = 0;  // as asked for
};

struct FreeOperation {
  uint64_t address = 0;
};

using Operation = std::variant<EmptyOperation, KernelOperation, CopyOperation, FillOperation,
                               HostOperation, LibraryOperation, PollOperation, RecordOperation,
                               WaitOperation, ChildOperation, AllocOperation, FreeOperation>;

}  // namespace softgpu

#endif  // SOFTGPU_STREAM_OPERATION_H_
