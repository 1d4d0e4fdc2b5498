#include "client/libraries/cudnn_graph.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace pyft::client {

Descriptor* descriptor_of(const void* handle) {
  const auto* found = static_cast<const DescriptorHandle*>(handle);
  return found && found->magic == DescriptorHandle::kMagic ? found->descriptor.get() : nullptr;
}

DescriptorPtr shared_descriptor(const void* handle) {
  return descriptor_of(handle) ? static_cast<const DescriptorHandle*>(handle)->descriptor : nullptr;
}

}  // namespace pyft::client

namespace {

enum Status { kBadParameter = 2000, kNotFinalized = 2004, kWrongType = 2010, kNotSupported = 3000 };

// Copies the elements a program passes; handles and descriptors become ours.
int read_elements(int32_t type, int64_t count, const void* from, Descriptor::Attribute* to) {
  to->type = type;
  to->count = count;
  const auto elements = static_cast<size_t>(count);
  if (type == graph::kDescriptor) {
    for (size_t i = 0; i < elements; ++i) {
      to->children.push_back(shared_descriptor(static_cast<void* const*>(from)[i]));
      if (!to->children.back()) return kBadParameter;
      if (!to->children.back()->finalized) return kNotFinalized;
    }
    return 0;
  }
  const auto* bytes = static_cast<const std::byte*>(from);
  to->bytes.assign(bytes, bytes + elements * graph::element_bytes(type));
  if (type != graph::kHandle) return 0;
  for (size_t i = 0; i < elements; ++i) {
    const LibraryObject* handle =
        library_object(static_cast<void* const*>(from)[i], ObjectType::cudnn);
    if (!handle) return kBadParameter;
    std::memcpy(to->bytes.data() + i * sizeof handle->id, &handle->id, sizeof handle->id);
  }
  return 0;
}

int write_elements(const Descriptor::Attribute& from, int32_t type, int64_t requested,
                   int64_t* count, void* to) {
  if (from.type != type) return kWrongType;
  if (count) *count = from.count;
  if (!to) return 0;
  const size_t room = static_cast<size_t>(requested) * graph::element_bytes(type);
  std::memcpy(to, from.bytes.data(), room < from.bytes.size() ? room : from.bytes.size());
  return 0;
}

// All of the tree must be of the device its root is made on.
int send_tree(const DescriptorPtr& root) {
  std::vector<DescriptorPtr> all;
  const std::vector<std::byte> tree = describe_tree(root, &all);
  const cmd::cudnnBackendFinalize body{root->id};
  Reply reply;
  const cudaError_t error = root->device.call(static_cast<uint16_t>(Call::cudnnBackendFinalize),
                                              bytes_of(body), &reply, {}, tree);
  if (error != cudaSuccess) return library_code(ObjectLibrary::cudnn, error);
  if (reply.code == cudaErrorNotSupported) return kNotSupported;
  if (reply.code) return reply.code;
  for (const DescriptorPtr& each : all) each->in_server = true;
  return 0;
}

int complete_children(const Descriptor& plan) {
  for (const auto& [name, attribute] : plan.attributes)
    for (const DescriptorPtr& child : attribute.children)
      if (child->type == graph::kEngineConfig)
        if (const int code = complete_config(*child)) return code;
  return 0;
}

// One entry per tensor of a variant pack.
std::vector<graph::Operand> operands(const Descriptor& plan, const Descriptor& pack) {
  std::vector<graph::Operand> result;
  const Descriptor::Attribute* uids = pack.find(graph::kPackUids);
  const Descriptor::Attribute* addresses = pack.find(graph::kPackAddresses);
  if (!uids || !addresses) return result;
  for (int64_t i = 0; i < uids->count && i < addresses->count; ++i) {
    graph::Operand operand;
    std::memcpy(&operand.uid, uids->bytes.data() + i * 8, 8);
    std::memcpy(&operand.address, addresses->bytes.data() + i * 8, 8);
    const auto value = plan.host_values.find(operand.uid);
    if (value != plan.host_values.end() && operand.address) {
      operand.value_bytes = value->second;
      std::memcpy(operand.value, reinterpret_cast<const void*>(operand.address), value->second);
      operand.address = 0;
    }
    result.push_back(operand);
  }
  return result;
}

// What of a variant pack does not travel.
bool only_known_parts(const Descriptor& pack) {
  for (const auto& [name, attribute] : pack.attributes)
    if (name != graph::kPackUids && name != graph::kPackAddresses && name != graph::kPackWorkspace)
      return false;
  return true;
}

}  // namespace

PYFT_API int cudnnBackendCreateDescriptor(int descriptorType, void** descriptor) {
  const Entered entered(Api::cudnnBackendCreateDescriptor);
  if (!descriptor) return kBadParameter;
  cudaError_t error;
  Device* const device = attached(&error);
  if (!device) return library_code(ObjectLibrary::cudnn, error);
  if (!library_present(*device, ObjectLibrary::cudnn, Api::cudnnBackendCreateDescriptor))
    return kNotSupported;
  auto handle = std::make_unique<DescriptorHandle>();
  handle->descriptor = std::make_shared<Descriptor>(*device, descriptorType);
  *descriptor = handle.release();
  return 0;
}

PYFT_API int cudnnBackendDestroyDescriptor(void* descriptor) {
  const Entered entered(Api::cudnnBackendDestroyDescriptor);
  if (!descriptor_of(descriptor)) return kBadParameter;
  const std::unique_ptr<DescriptorHandle> gone(static_cast<DescriptorHandle*>(descriptor));
  gone->magic = 0;
  return 0;
}

PYFT_API int cudnnBackendSetAttribute(void* descriptor, int attributeName, int attributeType,
                                      int64_t elementCount, const void* arrayOfElements) {
  const Entered entered(Api::cudnnBackendSetAttribute);
  Descriptor* const to = descriptor_of(descriptor);
  if (!to || to->finalized || elementCount < 0) return kBadParameter;
  if (!graph::element_bytes(attributeType)) return kWrongType;
  if (!arrayOfElements && elementCount) return 2002;  // CUDNN_STATUS_BAD_PARAM_NULL_POINTER
  Descriptor::Attribute attribute;
  if (const int code = read_elements(attributeType, elementCount, arrayOfElements, &attribute))
    return code;
  to->attributes[attributeName] = std::move(attribute);
  return 0;
}

PYFT_API int cudnnBackendFinalize(void* descriptor) {
  const Entered entered(Api::cudnnBackendFinalize);
  const DescriptorPtr found = shared_descriptor(descriptor);
  if (!found) return kBadParameter;
  if (graph::finalized_by_library(found->type)) {
    if (const int code = complete_children(*found)) return code;
    if (const int code = send_tree(found)) return code;
    if (found->type == graph::kPlan) found->host_values = host_values_of(*found);
  }
  found->finalized = true;
  return 0;
}

PYFT_API int cudnnBackendGetAttribute(void* descriptor, int attributeName, int attributeType,
                                      int64_t requestedElementCount, int64_t* elementCount,
                                      void* arrayOfElements) {
  const Entered entered(Api::cudnnBackendGetAttribute);
  Descriptor* const from = descriptor_of(descriptor);
  if (!from || requestedElementCount < 0) return kBadParameter;
  if (!from->finalized) return kNotFinalized;
  const uint32_t size = graph::element_bytes(attributeType);
  if (!size) return kWrongType;
  if (!graph::finalized_by_library(from->type) && !from->in_server) {
    const Descriptor::Attribute* found = from->find(attributeName);
    if (!found || attributeType == graph::kDescriptor || attributeType == graph::kHandle)
      return kNotSupported;
    return write_elements(*found, attributeType, requestedElementCount, elementCount,
                          arrayOfElements);
  }
  if (attributeType != graph::kDescriptor) {
    if (arrayOfElements &&
        static_cast<uint64_t>(requestedElementCount) * size > ring::kReplyInlineBytes) {
      unsupported(Api::cudnnBackendGetAttribute, "the answer is too long");
      return kNotSupported;
    }
    return get_attribute(*from, attributeName, attributeType, requestedElementCount, elementCount,
                         arrayOfElements, nullptr);
  }
  std::vector<DescriptorPtr> wanted;
  for (int64_t i = 0; arrayOfElements && i < requestedElementCount; ++i) {
    wanted.push_back(shared_descriptor(static_cast<void* const*>(arrayOfElements)[i]));
    if (!wanted.back() || wanted.back()->in_server) return kBadParameter;
  }
  const int code = get_attribute(*from, attributeName, attributeType, requestedElementCount,
                                 elementCount, nullptr, arrayOfElements ? &wanted : nullptr);
  const auto* graph = from->find(graph::kHeuristicGraph);
  for (const DescriptorPtr& each : wanted)
    each->origin = graph && !graph->children.empty() ? graph->children[0] : from->origin;
  return code;
}

PYFT_API int cudnnBackendExecute(void* handle, void* executionPlan, void* variantPack) {
  const Entered entered(Api::cudnnBackendExecute);
  const LibraryObject* const with = library_object(handle, ObjectType::cudnn);
  const Descriptor* const plan = descriptor_of(executionPlan);
  const Descriptor* const pack = descriptor_of(variantPack);
  if (!with || !plan || !pack || &with->device != &plan->device) return kBadParameter;
  if (!plan->in_server || !pack->finalized) return kNotFinalized;
  if (!only_known_parts(*pack)) {
    unsupported(Api::cudnnBackendExecute, "the variant pack has more than tensors and a workspace");
    return kNotSupported;
  }
  const std::vector<graph::Operand> tensors = operands(*plan, *pack);
  cmd::cudnnBackendExecute body{};
  body.handle = with->id;
  body.plan = plan->id;
  body.workspace = pack->value(graph::kPackWorkspace, uint64_t{0});
  body.has_workspace = pack->find(graph::kPackWorkspace) != nullptr;
  body.count = static_cast<uint32_t>(tensors.size());
  cudaError_t error = with->device.send(static_cast<uint16_t>(Call::cudnnBackendExecute),
                                        bytes_of(body), std::as_bytes(std::span(tensors)));
  cudaError_t gone;
  Stream* const stream = with->stream
                             ? stream_of(reinterpret_cast<cudaStream_t>(with->stream), &gone)
                             : &with->device.null_stream();
  if (stream) with->device.touch(*stream);
  return library_code(ObjectLibrary::cudnn, error);
}
