#include "work/perform.h"

#include "device/device.h"
#include "graph/capture.h"
#include "work/activity.h"
#include "work/handles.h"
#include "work/launch.h"
#include "work/transfer.h"

namespace softgpu {
namespace {

// Copies and allocations outlive the graph: the work keeps the operation that they lie in.
template <class Kind>
std::shared_ptr<const Kind> part(const std::shared_ptr<const Operation>& operation) {
  return {operation, std::get_if<Kind>(operation.get())};
}

struct Maker {
  const std::shared_ptr<const Operation>& operation;
  int device;

  Work operator()(const EmptyOperation&) const { return {}; }
  Work operator()(const KernelOperation& kernel) const { return launch_work(kernel); }
  Work operator()(const CopyOperation&) const { return copy_work(part<CopyOperation>(operation)); }
  Work operator()(const FillOperation& fill) const { return fill_work(fill); }
  Work operator()(const HostOperation& host) const {
    Work work;
    work.host_call = [host] { host.function(host.data); };
    return work;
  }
  Work operator()(const LibraryOperation& call) const {
    Work work;
    work.run = call.run;
    return work;
  }
  Work operator()(const PollOperation& poll) const {
    Work work;
    work.poll = poll.reached;
    work.run = poll.end;
    return work;
  }
  Work operator()(const RecordOperation& record) const { return record_work(record.event, device); }
  Work operator()(const WaitOperation& wait) const { return wait_work(wait.event); }
  Work operator()(const ChildOperation&) const { return {}; }
  // Memory of graphs is there all the time; what has to be kept is the operation, to its end.
  Work operator()(const AllocOperation&) const { return keep(); }
  Work operator()(const FreeOperation&) const { return keep(); }

  Work keep() const {
    Work work;
    work.run = [kept = operation]() -> Fault { return {}; };
    return work;
  }
};

}  // namespace

Work make_work(const std::shared_ptr<const Operation>& operation, int device) {
  return std::visit(Maker{operation, device}, *operation);
}

cudaError_t perform(const std::shared_ptr<Stream>& stream, Operation operation) {
  if (const auto captured = capture_operation(stream, operation, nullptr)) return *captured;
  const auto shared = std::make_shared<const Operation>(std::move(operation));
  Work work = make_work(shared, stream->device);
  record_activity(*shared, *stream, &work);
  device(stream->device).scheduler().submit(stream, std::move(work));
  return cudaSuccess;
}

}  // namespace softgpu
