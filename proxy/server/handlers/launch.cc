#include "server/handlers/handlers.h"

namespace pyft::server {
namespace {

// Cluster and cooperative launches need the attribute form.
CUresult launch_with_attributes(const backend::Table& api, CUfunction function, CUstream stream,
                                const cmd::cuLaunchKernel& c, void** extra) {
  CUlaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (c.flags & kLaunchCooperative) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count++].value.cooperative = 1;
  }
  if (c.cluster_x) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count].value.clusterDim.x = c.cluster_x;
    attributes[count].value.clusterDim.y = c.cluster_y;
    attributes[count++].value.clusterDim.z = c.cluster_z;
  }
  CUlaunchConfig config{};
  config.gridDimX = c.grid_x;
  config.gridDimY = c.grid_y;
  config.gridDimZ = c.grid_z;
  config.blockDimX = c.block_x;
  config.blockDimY = c.block_y;
  config.blockDimZ = c.block_z;
  config.sharedMemBytes = c.shared_bytes;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return api.cuLaunchKernelEx(&config, function, nullptr, extra);
}

}  // namespace

Status do_cuLaunchKernel(Session& session, const EntryHeader& header, const cmd::cuLaunchKernel& c,
                         Body tail, Body) {
  CUfunction function;
  CUstream stream;
  if (!resolve_kernel(session, c.kernel, &function)) return bad_handle(c.kernel);
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  if (c.param_bytes > tail.size()) return short_body("cuLaunchKernel");
  size_t bytes = c.param_bytes;
  void* packed[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(tail.data()),
                    CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  void** const extra = bytes ? packed : nullptr;  // an empty buffer has no address
  const backend::Table& api = session.backend();
  const bool plain = !c.flags && !c.cluster_x;
  const int code =
      plain ? api.cuLaunchKernel(function, c.grid_x, c.grid_y, c.grid_z, c.block_x, c.block_y,
                                 c.block_z, c.shared_bytes, stream, nullptr, extra)
            : launch_with_attributes(api, function, stream, c, extra);
  return finish(session, header, "cuLaunchKernel", Domain::kCuda, code);
}

}  // namespace pyft::server
