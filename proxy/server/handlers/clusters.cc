// How many clusters of blocks the device holds, or how large they may be.
#include "server/handlers/handlers.h"

namespace pyft::server {

Status do_cuOccupancyMaxActiveClusters(Session& session, const EntryHeader& header,
                                       const cmd::cuOccupancyMaxActiveClusters& c, Body, Body) {
  CUfunction function;
  if (!resolve_kernel(session, c.kernel, &function)) return bad_handle(c.kernel);
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {c.cluster_x, c.cluster_y, c.cluster_z};
  CUlaunchConfig config{};
  config.gridDimX = c.grid_x;
  config.gridDimY = c.grid_y;
  config.gridDimZ = c.grid_z;
  config.blockDimX = c.block_x;
  config.blockDimY = c.block_y;
  config.blockDimZ = c.block_z;
  config.sharedMemBytes = c.shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = c.cluster_x ? 1 : 0;
  const backend::Table& api = session.backend();
  const auto query =
      c.largest ? api.cuOccupancyMaxPotentialClusterSize : api.cuOccupancyMaxActiveClusters;
  const char* const name =
      c.largest ? "cuOccupancyMaxPotentialClusterSize" : "cuOccupancyMaxActiveClusters";
  if (!query) return missing(session, header, name, 801);
  int found = 0;
  const int code = query(&found, function, &config);
  const uint64_t values[] = {static_cast<uint64_t>(found)};
  return finish(session, header, name, Domain::kCuda, code, values, 1);
}

}  // namespace pyft::server
