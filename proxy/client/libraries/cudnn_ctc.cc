// cuDNN's CTC loss with labels in host memory. How many there are only the descriptor of the
// probabilities says (time, batch, symbols), and that is the server's.
#include "client/libraries/library_call.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

extern "C" int cudnnGetTensorNdDescriptor(void* tensorDesc, int nbDimsRequested, void* dataType,
                                          void* nbDims, void* dimA, void* strideA);

namespace {

constexpr auto kCudnn = ObjectLibrary::cudnn;

// Handles and host arrays of one call.
struct Problem {
  const LibraryObject *handle, *probs, *gradients, *loss;
  uint32_t batch = 0, labels = 0;
  std::vector<std::byte> tail;
  int code = 0;

  Problem(void* with, void* probs_desc, void* gradients_desc, void* loss_desc)
      : handle(library_object(with, ObjectType::cudnn)),
        probs(library_object(probs_desc, ObjectType::cudnn_tensor)),
        gradients(library_object(gradients_desc, ObjectType::cudnn_tensor)),
        loss(library_object(loss_desc, ObjectType::cudnn_ctc_loss)) {
    if (!handle || !probs || !loss || (gradients_desc && !gradients))
      code = library_codes(kCudnn).invalid;
  }
  void append(const int* from, uint32_t count) {
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    tail.insert(tail.end(), bytes, bytes + count * sizeof *from);
    tail.resize((tail.size() + 7) & ~size_t{7});
  }
  void take(void* probs_desc, const int* all_labels, const int* label_lengths,
            const int* input_lengths) {
    int type = 0, rank = 0, dims[3] = {}, strides[3] = {};
    if (code == 0) code = cudnnGetTensorNdDescriptor(probs_desc, 3, &type, &rank, dims, strides);
    if (code) return;
    if (!all_labels || !label_lengths || !input_lengths || rank != 3 || dims[1] < 0) {
      code = library_codes(kCudnn).invalid;
      return;
    }
    batch = static_cast<uint32_t>(dims[1]);
    for (uint32_t i = 0; i < batch; ++i) {
      if (label_lengths[i] < 0) code = library_codes(kCudnn).invalid;
      labels += static_cast<uint32_t>(label_lengths[i]);
    }
    if (code) return;
    append(all_labels, labels);
    append(label_lengths, batch);
    append(input_lengths, batch);
  }
  template <class Command>
  void fill(Command* body, int algo) const {
    body->handle = handle->id;
    body->probs_desc = probs->id;
    body->gradients_desc = gradients ? gradients->id : 0;
    body->loss = loss->id;
    body->algo = algo;
    body->batch = batch;
    body->labels = labels;
  }
};

}  // namespace

PYFT_API int cudnnCTCLoss(void* handle, void* probsDesc, void* probs, const int* hostLabels,
                          const int* hostLabelLengths, const int* hostInputLengths, void* costs,
                          void* gradientsDesc, void* gradients, int algo, void* ctcLossDesc,
                          void* workspace, size_t workSpaceSizeInBytes) {
  const Entered entered(Api::cudnnCTCLoss);
  Problem problem(handle, probsDesc, gradientsDesc, ctcLossDesc);
  problem.take(probsDesc, hostLabels, hostLabelLengths, hostInputLengths);
  if (problem.code) return problem.code;
  cmd::cudnnCTCLoss body{};
  problem.fill(&body, algo);
  body.probs = reinterpret_cast<uint64_t>(probs);
  body.costs = reinterpret_cast<uint64_t>(costs);
  body.gradients = reinterpret_cast<uint64_t>(gradients);
  body.workspace = reinterpret_cast<uint64_t>(workspace);
  body.workspace_bytes = workSpaceSizeInBytes;
  Device& device = problem.handle->device;
  const cudaError_t error =
      device.send(static_cast<uint16_t>(Call::cudnnCTCLoss), bytes_of(body), problem.tail);
  cudaError_t gone;
  const uint64_t in = problem.handle->stream;
  Stream* const stream =
      in ? stream_of(reinterpret_cast<cudaStream_t>(in), &gone) : &device.null_stream();
  if (stream) device.touch(*stream);
  return library_code(kCudnn, error);
}

PYFT_API int cudnnGetCTCLossWorkspaceSize(void* handle, void* probsDesc, void* gradientsDesc,
                                          const int* labels, const int* labelLengths,
                                          const int* inputLengths, int algo, void* ctcLossDesc,
                                          size_t* sizeInBytes) {
  const Entered entered(Api::cudnnGetCTCLossWorkspaceSize);
  Problem problem(handle, probsDesc, gradientsDesc, ctcLossDesc);
  problem.take(probsDesc, labels, labelLengths, inputLengths);
  if (problem.code) return problem.code;
  cmd::cudnnGetCTCLossWorkspaceSize body{};
  problem.fill(&body, algo);
  Reply reply;
  const cudaError_t error =
      problem.handle->device.call(static_cast<uint16_t>(Call::cudnnGetCTCLossWorkspaceSize),
                                  bytes_of(body), &reply, problem.tail);
  if (error != cudaSuccess) return library_code(kCudnn, error);
  if (reply.code == 0 && sizeInBytes) *sizeInBytes = reply.values[0];
  return reply.code == cudaErrorNotSupported ? library_codes(kCudnn).not_supported : reply.code;
}
