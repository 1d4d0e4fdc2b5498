// What a stream can be asked to do, as a value: executed once when it is put on a stream, kept in a
// graph node when the stream is being captured, and executed again at each launch of that graph.
#ifndef SOFTGPU_CORE_OPERATION_H_
#define SOFTGPU_CORE_OPERATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/kernel.h"
#include "core/stream.h"
#include "core/transfer.h"

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

struct CopyOperation {
  uint64_t dst = 0, src = 0;
  CopyShape shape;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  bool dst_known = false, src_known = false;  // device or pinned: must be mapped when it is done
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
};

// A word in memory that the stream waits for.
struct PollOperation {
  std::function<bool()> reached;
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

// The work of an operation that a stream of `device` does now. Event operations look their event
// up now, as a launch of their graph does. Precondition: no ChildOperation.
Work make_work(const std::shared_ptr<const Operation>& operation, int device);

// Puts an operation on a stream; on a stream that is being captured, into its graph.
cudaError_t perform(const std::shared_ptr<Stream>& stream, Operation operation);

}  // namespace softgpu

#endif  // SOFTGPU_CORE_OPERATION_H_
