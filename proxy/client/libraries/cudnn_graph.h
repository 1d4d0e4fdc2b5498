// Descriptors of cuDNN's graphs as the client keeps them.
//
// Most live here only: a variant pack per convolution and step must cost no round trip. One that
// the library has to look at is sent when it is finalized, with all it consists of, so that this
// one command suffices to make it again in another server; a server leaves out what it has.
#ifndef PYFT_CLIENT_LIBRARIES_CUDNN_GRAPH_H_
#define PYFT_CLIENT_LIBRARIES_CUDNN_GRAPH_H_

#include <map>
#include <memory>
#include <vector>

#include "api/cudnn_graph.h"
#include "client/libraries/library_call.h"

namespace pyft::client {

struct Descriptor;
using DescriptorPtr = std::shared_ptr<Descriptor>;

struct Descriptor {
  struct Attribute {
    int32_t type = 0;
    int64_t count = 0;
    std::vector<std::byte> bytes;         // handles are numbers of objects already
    std::vector<DescriptorPtr> children;  // of type kDescriptor, instead of bytes
  };

  Descriptor(Device& device, int32_t type)
      : device(device), type(type), id(mint_object(ObjectType::cudnn_descriptor)) {}
  ~Descriptor();

  const Attribute* find(int32_t name) const;
  // The first element of an attribute of that size, or `otherwise`.
  template <class Value>
  Value value(int32_t name, Value otherwise) const {
    const Attribute* found = find(name);
    if (found && found->bytes.size() >= sizeof otherwise)
      std::memcpy(&otherwise, found->bytes.data(), sizeof otherwise);
    return otherwise;
  }

  Device& device;
  int32_t type;
  uint64_t id;
  bool finalized = false;
  bool in_server = false;
  DescriptorPtr origin;  // the graph that an engine configuration was proposed for
  std::map<int32_t, Attribute> attributes;  // by name: equal descriptors have equal bytes
  std::map<int64_t, uint32_t> host_values;  // of a plan: bytes of tensors that are host values
};

// What a program's descriptor points to. Its parts live on in others after it is destroyed.
struct DescriptorHandle {
  static constexpr uint32_t kMagic = 0x44544650;
  uint32_t magic = kMagic;
  DescriptorPtr descriptor;
};

Descriptor* descriptor_of(const void* handle);  // nullptr: not one of ours
DescriptorPtr shared_descriptor(const void* handle);

// The payload of cudnnBackendFinalize, and what is in the server once that has succeeded.
std::vector<std::byte> describe_tree(const DescriptorPtr& root, std::vector<DescriptorPtr>* all);
// Asks for the contents of an engine configuration that a heuristic has made: they make it again.
int complete_config(Descriptor& config);
// cudnnBackendGetAttribute of something in the server. `wanted`: what is to be filled, or null.
int get_attribute(Descriptor& of, int32_t name, int32_t type, int64_t requested, int64_t* count,
                  void* elements, const std::vector<DescriptorPtr>* wanted);
// Tensors of a tree that are host values: their numbers and sizes.
std::map<int64_t, uint32_t> host_values_of(const Descriptor& root);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_LIBRARIES_CUDNN_GRAPH_H_
