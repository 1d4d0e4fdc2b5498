#include <algorithm>
#include <set>

#include "client/libraries/cudnn_graph.h"

namespace pyft::client {
namespace {

void append(std::vector<std::byte>* to, const void* from, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(from);
  to->insert(to->end(), at, at + bytes);
  to->resize((to->size() + 7) & ~size_t{7});
}

void append_attribute(std::vector<std::byte>* to, int32_t name, const Descriptor::Attribute& from) {
  std::vector<uint64_t> ids;
  for (const DescriptorPtr& child : from.children) ids.push_back(child->id);
  const Bytes elements =
      from.type == graph::kDescriptor ? std::as_bytes(std::span(ids)) : Bytes(from.bytes);
  graph::NodeAttribute head;
  head.count = from.count;
  head.name = name;
  head.type = from.type;
  head.bytes = static_cast<uint32_t>(elements.size());
  append(to, &head, sizeof head);
  append(to, elements.data(), elements.size());
}

// Children first; each once.
void collect(const DescriptorPtr& from, std::set<const Descriptor*>* seen,
             std::vector<DescriptorPtr>* all) {
  if (!seen->insert(from.get()).second) return;
  for (const auto& [name, attribute] : from->attributes)
    for (const DescriptorPtr& child : attribute.children) collect(child, seen, all);
  all->push_back(from);
}

uint32_t data_type_bytes(int32_t type) {
  switch (type) {
    case 1:   // double
    case 10:  // int64
    case 20:  // complex float
      return 8;
    case 2:  // half
    case 9:  // bfloat16
      return 2;
    case 3:   // int8
    case 6:   // uint8
    case 11:  // boolean
      return 1;
    case 21:  // complex double
      return 16;
    default:
      return 4;
  }
}

void find_host_values(const Descriptor& from, std::map<int64_t, uint32_t>* found) {
  if (from.type == graph::kTensor && from.value(graph::kTensorByValue, uint8_t{0}))
    (*found)[from.value(graph::kTensorUid, int64_t{0})] =
        data_type_bytes(from.value(graph::kTensorDataType, int32_t{0}));
  for (const auto& [name, attribute] : from.attributes)
    for (const DescriptorPtr& child : attribute.children) find_host_values(*child, found);
  if (from.origin) find_host_values(*from.origin, found);
}

template <class Value>
void set_value(Descriptor& of, int32_t name, int32_t type, const Value& value) {
  Descriptor::Attribute& attribute = of.attributes[name];
  attribute.type = type;
  attribute.count = 1;
  const Bytes bytes = bytes_of(value);
  attribute.bytes.assign(bytes.begin(), bytes.end());
}

void set_children(Descriptor& of, int32_t name, std::vector<DescriptorPtr> children) {
  Descriptor::Attribute& attribute = of.attributes[name];
  attribute.type = graph::kDescriptor;
  attribute.count = static_cast<int64_t>(children.size());
  attribute.children = std::move(children);
}

int complete_engine(Descriptor& config) {
  const auto engine = std::make_shared<Descriptor>(config.device, graph::kEngine);
  const std::vector<DescriptorPtr> wanted = {engine};
  int64_t count = 0, index = 0;
  if (const int code = get_attribute(config, graph::kConfigEngine, graph::kDescriptor, 1, &count,
                                     nullptr, &wanted))
    return code;
  if (const int code =
          get_attribute(*engine, graph::kEngineIndex, graph::kInt64, 1, &count, &index, nullptr))
    return code;
  if (config.origin) set_children(*engine, graph::kEngineGraph, {config.origin});
  set_value(*engine, graph::kEngineIndex, graph::kInt64, index);
  set_children(config, graph::kConfigEngine, {engine});
  return 0;
}

int complete_knobs(Descriptor& config) {
  constexpr int64_t kMostKnobs = 256;
  int64_t count = 0;
  if (const int code = get_attribute(config, graph::kConfigKnobs, graph::kDescriptor, 0, &count,
                                     nullptr, nullptr))
    return code;
  std::vector<DescriptorPtr> knobs;
  for (int64_t i = 0; i < std::min(count, kMostKnobs); ++i)
    knobs.push_back(std::make_shared<Descriptor>(config.device, graph::kKnobChoice));
  if (knobs.empty()) return 0;
  if (const int code = get_attribute(config, graph::kConfigKnobs, graph::kDescriptor, count, &count,
                                     nullptr, &knobs))
    return code;
  for (const DescriptorPtr& knob : knobs) {
    int32_t type = 0;
    int64_t value = 0;
    if (const int code = get_attribute(*knob, graph::kKnobChoiceType, graph::kKnobType, 1, &count,
                                       &type, nullptr))
      return code;
    if (const int code = get_attribute(*knob, graph::kKnobChoiceValue, graph::kInt64, 1, &count,
                                       &value, nullptr))
      return code;
    set_value(*knob, graph::kKnobChoiceType, graph::kKnobType, type);
    set_value(*knob, graph::kKnobChoiceValue, graph::kInt64, value);
  }
  set_children(config, graph::kConfigKnobs, std::move(knobs));
  return 0;
}

}  // namespace

const Descriptor::Attribute* Descriptor::find(int32_t name) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? nullptr : &found->second;
}

Descriptor::~Descriptor() {
  // Nothing can wait for this, and after the end of the server there is nothing to end.
  if (in_server)
    device.send(Call::cudnnBackendDestroyDescriptor, cmd::cudnnBackendDestroyDescriptor{id});
}

std::vector<std::byte> describe_tree(const DescriptorPtr& root, std::vector<DescriptorPtr>* all) {
  std::set<const Descriptor*> seen;
  collect(root, &seen, all);
  std::vector<std::byte> bytes;
  for (const DescriptorPtr& each : *all) {
    const graph::Node node{each->id, each->type, static_cast<uint32_t>(each->attributes.size())};
    append(&bytes, &node, sizeof node);
    for (const auto& [name, attribute] : each->attributes)
      append_attribute(&bytes, name, attribute);
  }
  return bytes;
}

int complete_config(Descriptor& config) {
  if (!config.in_server || config.find(graph::kConfigEngine)) return 0;
  const int code = complete_engine(config);
  return code ? code : complete_knobs(config);
}

std::map<int64_t, uint32_t> host_values_of(const Descriptor& root) {
  std::map<int64_t, uint32_t> found;
  find_host_values(root, &found);
  return found;
}

int get_attribute(Descriptor& of, int32_t name, int32_t type, int64_t requested, int64_t* count,
                  void* elements, const std::vector<DescriptorPtr>* wanted) {
  const LibraryCodes& codes = library_codes(ObjectLibrary::cudnn);
  cmd::cudnnBackendGetAttribute body{};
  body.descriptor = of.id;
  body.requested = requested;
  body.name = name;
  body.type = type;
  body.array = wanted || elements;
  std::vector<graph::Wanted> ids;
  if (wanted)
    for (const DescriptorPtr& each : *wanted) ids.push_back({each->id, each->type, 0});
  Reply reply;
  const cudaError_t error = of.device.call(static_cast<uint16_t>(Call::cudnnBackendGetAttribute),
                                           bytes_of(body), &reply, std::as_bytes(std::span(ids)));
  if (error != cudaSuccess) return library_code(ObjectLibrary::cudnn, error);
  if (reply.code == cudaErrorNotSupported) return codes.not_supported;
  if (reply.code) return reply.code;
  if (count) std::memcpy(count, &reply.values[0], sizeof *count);
  if (wanted)
    for (const DescriptorPtr& each : *wanted) each->in_server = each->finalized = true;
  else if (elements)
    std::memcpy(elements, reply.data.data(), reply.data.size());
  return 0;
}

}  // namespace pyft::client
