// cuDNN's graphs on the wire, and the few numbers of cudnn_graph.h that we look at: the build does
// not have that header; tests/wire/cudnn_numbers_check.cc compares them where it is installed.
#ifndef PYFT_API_CUDNN_GRAPH_H_
#define PYFT_API_CUDNN_GRAPH_H_

#include <cstdint>

namespace pyft::graph {

// A tree of descriptors, children first, is the payload of cudnnBackendFinalize: for each a Node,
// and for each of its attributes a NodeAttribute with its elements behind it, padded to 8 bytes.
// Elements that are handles or descriptors are numbers of objects.
struct Node {
  uint64_t id = 0;
  int32_t type = 0;  // DescriptorType
  uint32_t attributes = 0;
};
static_assert(sizeof(Node) == 16);

struct NodeAttribute {
  int64_t count = 0;
  int32_t name = 0, type = 0;
  uint32_t bytes = 0, reserved = 0;
};
static_assert(sizeof(NodeAttribute) == 24);

// Follows cudnnBackendExecute, once per tensor: its address, or the value of a host value.
struct Operand {
  int64_t uid = 0;
  uint64_t address = 0;
  uint32_t value_bytes = 0, reserved = 0;
  uint64_t value[2] = {};
};
static_assert(sizeof(Operand) == 40);

// Follows cudnnBackendGetAttribute, once per descriptor that is to be filled.
struct Wanted {
  uint64_t id = 0;
  int32_t type = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(Wanted) == 16);

enum DescriptorType : int32_t {
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristic = 4,
  kPlan = 5,
  kIntermediateInfo = 6,
  kKnobChoice = 7,
  kKnobInfo = 8,
  kLayoutInfo = 9,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kKernelCache = 34,
  kDeviceProperties = 38,
};

enum ElementType : int32_t {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kAddress = 6,
  kKnobType = 9,
  kDescriptor = 15,
  kChar = 24,
  kFraction = 26,
  kLastType = 30,
};

enum AttributeName : int32_t {
  kHeuristicGraph = 201,
  kConfigEngine = 300,
  kConfigKnobs = 302,
  kKnobChoiceType = 600,
  kKnobChoiceValue = 601,
  kTensorDataType = 901,
  kTensorUid = 906,
  kTensorByValue = 908,
  kPackUids = 1000,
  kPackAddresses = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
};

// 0: no such type. Besides these there are float, int32 and enumerators.
constexpr uint32_t element_bytes(int32_t type) {
  switch (type) {
    case kBoolean:
    case kChar:
      return 1;
    case kHandle:
    case kInt64:
    case 5:  // CUDNN_TYPE_DOUBLE
    case kAddress:
    case kDescriptor:
      return 8;
    case kFraction:
      return 16;
    default:
      return type >= 0 && type <= kLastType ? 4 : 0;
  }
}

// What the library has to look at when it is finalized; everything else is only part of such a one.
constexpr bool finalized_by_library(int32_t type) {
  switch (type) {
    case kEngine:
    case kEngineConfig:
    case kEngineHeuristic:
    case kPlan:
    case kOperationGraph:
    case kKernelCache:
    case kDeviceProperties:
      return true;
    default:
      return false;
  }
}

}  // namespace pyft::graph

#endif  // PYFT_API_CUDNN_GRAPH_H_
