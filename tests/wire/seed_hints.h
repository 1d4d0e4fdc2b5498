// What the records do not say of the seeds of hand-written commands: how long their tails and
// payloads are, and what is in them. A command that is not here has none of its own.
#ifndef PYFT_TESTS_WIRE_SEED_HINTS_H_
#define PYFT_TESTS_WIRE_SEED_HINTS_H_

#include <utility>

#include "api/call_ids.h"
#include "api/commands.h"
#include "api/cudnn_graph.h"
#include "api/nccl_settings.h"
#include "api/object_types.h"
#include "pyft/handle.h"
#include "wire/corpus.h"

namespace pyft {

// Objects of this number are there when a seed is dispatched; a creation makes the next one.
inline constexpr uint32_t kSeedObject = 3, kNewSeedObject = 4;
inline constexpr uint64_t kGranule = uint64_t{2} << 20;
inline constexpr uint64_t kSeedAddress = ring::kDeviceWindowBase + kGranule;
inline constexpr uint64_t kSeedPinned = ring::kPinnedWindowBase;
inline constexpr uint64_t kSeedFloat = 0x3ff0'0000'0000'0000;  // 1.0
inline constexpr Scalar kSeedScalar{kSeedFloat, 0};
inline constexpr size_t kSeedPayload = 16;

constexpr uint64_t seed_handle(HandleKind kind) {
  return Handle::make(kind, kSeedObject, 1).value;
}
constexpr uint64_t new_seed_handle(HandleKind kind) {
  return Handle::make(kind, kNewSeedObject, 1).value;
}
constexpr uint64_t seed_object(ObjectType type) {
  return ObjectId::make(static_cast<uint8_t>(type), kSeedObject).value;
}
constexpr uint64_t new_seed_object(ObjectType type) {
  return ObjectId::make(static_cast<uint8_t>(type), kNewSeedObject).value;
}
constexpr BlasState seed_blas() {
  return {seed_handle(HandleKind::kCublas), seed_handle(HandleKind::kStream)};
}

// Commands that need another one before them.
inline constexpr std::pair<Call, Call> kSeedsBefore[] = {
    {Call::cudaFree, Call::cudaMalloc},
    {Call::cudaFreeHost, Call::cudaHostAlloc},
    {Call::cuMemRelease, Call::cuMemCreate},
    {Call::cuMemMap, Call::cuMemCreate},
};

inline void append(Message* to, const Message& bytes) {
  to->insert(to->end(), bytes.begin(), bytes.end());
}

template <class Command>
void seed_hint(Command&, Message* /*tail*/, Message* /*payload*/) {}

// ---- memory
inline void seed_hint(cmd::cudaMalloc& c, Message*, Message*) {
  c.bytes = kGranule;
}
inline void seed_hint(cmd::cudaFree& c, Message*, Message*) {
  c.bytes = kGranule;
}
inline void seed_hint(cmd::cuMemCreate& c, Message*, Message*) {
  c.handle = new_seed_handle(HandleKind::kPhysicalMemory);
}
inline void seed_hint(cmd::cuMemRelease& c, Message*, Message*) {
  c.handle = new_seed_handle(HandleKind::kPhysicalMemory);
}
inline void seed_hint(cmd::cuMemMap& c, Message*, Message*) {
  c.handle = new_seed_handle(HandleKind::kPhysicalMemory);
}
inline void seed_hint(cmd::cudaIpcOpenMemHandle&, Message*, Message* payload) {
  payload->resize(64);  // CUipcMemHandle
}
inline void seed_hint(cmd::pyftKeepImport&, Message*, Message* payload) {
  payload->resize(64);
}
inline void seed_hint(cmd::cudaIpcOpenEventHandle&, Message*, Message* payload) {
  payload->resize(64);
}

// ---- kernels
inline void seed_hint(cmd::cuLaunchKernel&, Message* tail, Message*) {
  tail->resize(8);  // parameters
}
inline void seed_hint(cmd::cudaGraphKernelNodeSetParams&, Message* tail, Message*) {
  tail->resize(8);
}
inline void seed_hint(cmd::cuTensorMapEncodeTiled&, Message* tail, Message*) {
  *tail = message_of(TensorMapArguments{.address = kSeedAddress, .rank = 1});
}
inline void seed_hint(cmd::cuTensorMapEncodeIm2col&, Message* tail, Message*) {
  *tail = message_of(TensorMapArguments{.address = kSeedAddress, .rank = 3});
}

// ---- NCCL
inline NcclSettings seed_settings() {
  NcclSettings settings{};
  for (int32_t& number : settings.numbers) number = NCCL_CONFIG_UNDEF_INT;
  settings.comm_name[0] = 'a';
  return settings;
}
inline void seed_hint(cmd::ncclCommInitRankScalable& c, Message*, Message* payload) {
  c.ranks = 2;
  *payload = message_of(ncclUniqueId{});
  append(payload, message_of(seed_settings()));
}
inline void seed_hint(cmd::ncclCommSplit&, Message*, Message* payload) {
  *payload = message_of(seed_settings());
}
inline void seed_hint(cmd::ncclCommShrink& c, Message*, Message* payload) {
  *payload = message_of(c.excluded);  // one rank
}

// ---- cuBLASLt
inline LtProblem seed_problem() {
  LtProblem problem{};
  problem.desc.given = uint64_t{1} << 3;  // CUBLASLT_MATMUL_DESC_TRANSA
  problem.a.batch_count = 2;
  problem.preference.search_mode = 1;
  return problem;
}
inline void seed_hint(cmd::cublasLtMatmul&, Message* tail, Message*) {
  *tail = message_of(seed_problem());
}
inline void seed_hint(cmd::cublasLtMatmulAlgoGetHeuristic&, Message* tail, Message*) {
  *tail = message_of(seed_problem());
}

// ---- cuDNN
inline void seed_hint(cmd::pyftOpenLibrary& c, Message*, Message*) {
  c.library = ObjectId::make(0, 1).value;
}
// A tree of one descriptor with one attribute.
inline void seed_hint(cmd::cudnnBackendFinalize& c, Message*, Message* payload) {
  c.descriptor = new_seed_object(ObjectType::cudnn_descriptor);
  *payload = message_of(graph::Node{c.descriptor, graph::kTensor, 1});
  append(payload, message_of(graph::NodeAttribute{1, graph::kTensorUid, graph::kInt64, 8, 0}));
  append(payload, message_of(uint64_t{7}));
}
inline void seed_hint(cmd::cudnnBackendGetAttribute& c, Message* tail, Message*) {
  c.descriptor = seed_object(ObjectType::cudnn_descriptor);
  c.type = graph::kDescriptor;
  *tail = message_of(
      graph::Wanted{new_seed_object(ObjectType::cudnn_descriptor), graph::kEngineConfig, 0});
}
inline void seed_hint(cmd::cudnnBackendExecute& c, Message* tail, Message*) {
  c.handle = seed_object(ObjectType::cudnn);
  c.plan = seed_object(ObjectType::cudnn_descriptor);
  *tail = message_of(graph::Operand{1, kSeedAddress, 0, 0, {}});
}
inline void seed_hint(cmd::cudnnBackendDestroyDescriptor& c, Message*, Message*) {
  c.descriptor = seed_object(ObjectType::cudnn_descriptor);
}
// Labels, and lengths of labels and inputs, each padded to 8 bytes: one of each.
template <class Command>
void seed_loss(Command& c, Message* tail) {
  c.handle = seed_object(ObjectType::cudnn);
  c.probs_desc = c.gradients_desc = seed_object(ObjectType::cudnn_tensor);
  c.loss = seed_object(ObjectType::cudnn_ctc_loss);
  for (int i = 0; i < 3; ++i) append(tail, message_of(uint64_t{1}));
}
inline void seed_hint(cmd::cudnnCTCLoss& c, Message* tail, Message*) {
  seed_loss(c, tail);
}
inline void seed_hint(cmd::cudnnGetCTCLossWorkspaceSize& c, Message* tail, Message*) {
  seed_loss(c, tail);
}

// An entry as it lies in the ring.
template <class Command>
Seed seed_of(Call call, const Command& c, bool waits, const Message& tail, Message payload) {
  Seed seed{};
  seed.header.call = static_cast<uint16_t>(call);
  seed.header.flags = static_cast<uint16_t>(entry_flags(call) | (waits ? ring::kWantsReply : 0) |
                                            (payload.empty() ? 0 : ring::kHasPayload));
  seed.header.payload_bytes = payload.size();
  seed.body = message_of(c);
  append(&seed.body, tail);
  seed.body.resize((seed.body.size() + ring::kEntryAlign - 1) / ring::kEntryAlign *
                   ring::kEntryAlign);
  seed.payload = std::move(payload);
  return seed;
}

// One of each command, made from the records (tools/gen/emit_seeds.py).
std::vector<Seed> seeds();

}  // namespace pyft

#endif  // PYFT_TESTS_WIRE_SEED_HINTS_H_
