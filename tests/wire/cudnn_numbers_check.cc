// The numbers we know of cuDNN's graphs against its header, by the compiler.
#include "api/cudnn_graph.h"

#include <cudnn_graph.h>

namespace graph = pyft::graph;

static_assert(int{graph::kEngine} == int{CUDNN_BACKEND_ENGINE_DESCRIPTOR});
static_assert(int{graph::kEngineConfig} == int{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR});
static_assert(int{graph::kEngineHeuristic} == int{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR});
static_assert(int{graph::kPlan} == int{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR});
static_assert(int{graph::kIntermediateInfo} == int{CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR});
static_assert(int{graph::kKnobChoice} == int{CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR});
static_assert(int{graph::kKnobInfo} == int{CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR});
static_assert(int{graph::kLayoutInfo} == int{CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR});
static_assert(int{graph::kOperationGraph} == int{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR});
static_assert(int{graph::kVariantPack} == int{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR});
static_assert(int{graph::kTensor} == int{CUDNN_BACKEND_TENSOR_DESCRIPTOR});
static_assert(int{graph::kKernelCache} == int{CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR});
static_assert(int{graph::kDeviceProperties} == int{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR});

static_assert(int{graph::kHandle} == int{CUDNN_TYPE_HANDLE});
static_assert(int{graph::kDataType} == int{CUDNN_TYPE_DATA_TYPE});
static_assert(int{graph::kBoolean} == int{CUDNN_TYPE_BOOLEAN});
static_assert(int{graph::kInt64} == int{CUDNN_TYPE_INT64});
static_assert(int{graph::kAddress} == int{CUDNN_TYPE_VOID_PTR});
static_assert(int{graph::kKnobType} == int{CUDNN_TYPE_KNOB_TYPE});
static_assert(int{graph::kDescriptor} == int{CUDNN_TYPE_BACKEND_DESCRIPTOR});
static_assert(int{graph::kChar} == int{CUDNN_TYPE_CHAR});
static_assert(int{graph::kFraction} == int{CUDNN_TYPE_FRACTION});
static_assert(int{graph::kLastType} == int{CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE});
static_assert(graph::element_bytes(CUDNN_TYPE_DOUBLE) == 8);
static_assert(graph::element_bytes(CUDNN_TYPE_FLOAT) == 4);
static_assert(graph::element_bytes(CUDNN_TYPE_FRACTION) == sizeof(cudnnFraction_t));

static_assert(int{graph::kHeuristicGraph} == int{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH});
static_assert(int{graph::kConfigEngine} == int{CUDNN_ATTR_ENGINECFG_ENGINE});
static_assert(int{graph::kConfigKnobs} == int{CUDNN_ATTR_ENGINECFG_KNOB_CHOICES});
static_assert(int{graph::kKnobChoiceType} == int{CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE});
static_assert(int{graph::kKnobChoiceValue} == int{CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE});
static_assert(int{graph::kTensorDataType} == int{CUDNN_ATTR_TENSOR_DATA_TYPE});
static_assert(int{graph::kTensorUid} == int{CUDNN_ATTR_TENSOR_UNIQUE_ID});
static_assert(int{graph::kTensorByValue} == int{CUDNN_ATTR_TENSOR_IS_BY_VALUE});
static_assert(int{graph::kPackUids} == int{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS});
static_assert(int{graph::kPackAddresses} == int{CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS});
static_assert(int{graph::kPackWorkspace} == int{CUDNN_ATTR_VARIANT_PACK_WORKSPACE});
static_assert(int{graph::kEngineGraph} == int{CUDNN_ATTR_ENGINE_OPERATION_GRAPH});
static_assert(int{graph::kEngineIndex} == int{CUDNN_ATTR_ENGINE_GLOBAL_INDEX});
