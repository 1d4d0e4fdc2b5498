// cuDNN's CTC loss with labels in host memory.
#include "server/handlers/library.h"

namespace pyft::server {
namespace {

// What both calls have: objects, and arrays as long as descriptor and lengths say.
struct Problem {
  void *handle = nullptr, *probs = nullptr, *gradients = nullptr, *loss = nullptr;
  void *labels = nullptr, *label_lengths = nullptr, *input_lengths = nullptr;

  template <class Command>
  bool find(Session& session, const Command& c) {
    return find_object(session, c.handle, ObjectType::cudnn, &handle) &&
           find_object(session, c.probs_desc, ObjectType::cudnn_tensor, &probs) &&
           find_object(session, c.loss, ObjectType::cudnn_ctc_loss, &loss) &&
           (!c.gradients_desc ||
            find_object(session, c.gradients_desc, ObjectType::cudnn_tensor, &gradients));
  }
  // The library reads as many as its descriptor says, whatever the client has sent.
  template <class Command>
  bool take(Session& session, HostArrays& host, const Command& c) {
    labels = host.in(c.labels * uint32_t{4}, uint64_t{c.labels} * 4);
    label_lengths = host.in(c.batch * uint32_t{4}, uint64_t{c.batch} * 4);
    input_lengths = host.in(c.batch * uint32_t{4}, uint64_t{c.batch} * 4);
    if (!host.ok()) return false;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c.batch; ++i) {
      const int length = static_cast<int*>(label_lengths)[i];
      if (length < 0) return false;
      sum += static_cast<uint64_t>(length);
    }
    int type = 0, rank = 0, dims[3] = {}, strides[3] = {};
    const auto describe = session.backend().cudnnGetTensorNdDescriptor;
    if (!describe || describe(probs, 3, &type, &rank, dims, strides)) return false;
    return sum == c.labels && rank == 3 && dims[1] == static_cast<int64_t>(c.batch);
  }
};

}  // namespace

Status do_cudnnCTCLoss(Session& session, const EntryHeader& header, const cmd::cudnnCTCLoss& c,
                       Body tail, Body) {
  const auto function = session.backend().cudnnCTCLoss;
  if (!function) return missing_object_call(session, header, "cudnnCTCLoss");
  Problem p;
  HostArrays host(tail);
  if (!p.find(session, c)) return bad_handle(c.handle);
  if (!p.take(session, host, c)) return bad_arrays("cudnnCTCLoss");
  const auto pointer = [](uint64_t address) { return reinterpret_cast<void*>(address); };
  const int code = function(p.handle, p.probs, pointer(c.probs), p.labels, p.label_lengths,
                            p.input_lengths, pointer(c.costs), p.gradients, pointer(c.gradients),
                            c.algo, p.loss, pointer(c.workspace), c.workspace_bytes);
  return finish_object_call(session, header, "cudnnCTCLoss", code, {});
}

Status do_cudnnGetCTCLossWorkspaceSize(Session& session, const EntryHeader& header,
                                       const cmd::cudnnGetCTCLossWorkspaceSize& c, Body tail,
                                       Body) {
  const auto function = session.backend().cudnnGetCTCLossWorkspaceSize;
  if (!function) return missing_object_call(session, header, "cudnnGetCTCLossWorkspaceSize");
  Problem p;
  HostArrays host(tail);
  if (!p.find(session, c)) return bad_handle(c.handle);
  if (!p.take(session, host, c)) return bad_arrays("cudnnGetCTCLossWorkspaceSize");
  uint64_t bytes = 0;
  const int code = function(p.handle, p.probs, p.gradients, p.labels, p.label_lengths,
                            p.input_lengths, c.algo, p.loss, &bytes);
  return finish_object_call(session, header, "cudnnGetCTCLossWorkspaceSize", code, {&bytes, 1});
}

}  // namespace pyft::server
