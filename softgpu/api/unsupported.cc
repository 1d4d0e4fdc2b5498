// Functions of graphs and pools that programs may link with and that this device does not have:
// handles of pools for other processes, and semaphores of other interfaces.
#include "api/stub.h"

namespace {

constexpr long kNotSupported = 801;

}  // namespace

SOFTGPU_STUB(cudaMemPoolExportToShareableHandle, kNotSupported)
SOFTGPU_STUB(cudaMemPoolImportFromShareableHandle, kNotSupported)
SOFTGPU_STUB(cudaMemPoolExportPointer, kNotSupported)
SOFTGPU_STUB(cudaMemPoolImportPointer, kNotSupported)
SOFTGPU_STUB(cudaGraphAddExternalSemaphoresSignalNode, kNotSupported)
SOFTGPU_STUB(cudaGraphAddExternalSemaphoresWaitNode, kNotSupported)
SOFTGPU_STUB(cudaGraphExternalSemaphoresSignalNodeGetParams, kNotSupported)
SOFTGPU_STUB(cudaGraphExternalSemaphoresWaitNodeGetParams, kNotSupported)
SOFTGPU_STUB(cuMemPoolExportToShareableHandle, kNotSupported)
SOFTGPU_STUB(cuMemPoolImportFromShareableHandle, kNotSupported)
SOFTGPU_STUB(cuMemPoolExportPointer, kNotSupported)
SOFTGPU_STUB(cuMemPoolImportPointer, kNotSupported)
SOFTGPU_STUB(cuGraphAddExternalSemaphoresSignalNode, kNotSupported)
SOFTGPU_STUB(cuGraphAddExternalSemaphoresWaitNode, kNotSupported)
SOFTGPU_STUB(cuGraphAddBatchMemOpNode, kNotSupported)
SOFTGPU_STUB(cuGraphBatchMemOpNodeGetParams, kNotSupported)
SOFTGPU_STUB(cuGraphBatchMemOpNodeSetParams, kNotSupported)
SOFTGPU_STUB(cuGraphExecBatchMemOpNodeSetParams, kNotSupported)
