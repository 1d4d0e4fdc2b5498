// cuDNN's graphs from a program's calls to a library that keeps what it is given: what crosses,
// what stays in the client, and that one command makes a plan in a server that knows nothing.
#include <map>
#include <set>

#include "api/mock_table.h"
#include "check.h"
#include "client/libraries/cudnn_graph.h"
#include "wire/one_process.h"

using namespace pyft;  // NOLINT: a test

extern "C" {
int cudnnCreate(void** handle);
int cudnnSetStream(void* handle, void* stream);
int cudnnBackendCreateDescriptor(int type, void** descriptor);
int cudnnBackendDestroyDescriptor(void* descriptor);
int cudnnBackendSetAttribute(void*, int name, int type, int64_t count, const void* elements);
int cudnnBackendGetAttribute(void*, int name, int type, int64_t requested, int64_t* count, void*);
int cudnnBackendFinalize(void* descriptor);
int cudnnBackendExecute(void* handle, void* plan, void* pack);
int cudnnCreateTensorDescriptor(void** descriptor);
int cudnnCreateCTCLossDescriptor(void** descriptor);
int cudnnGetCTCLossWorkspaceSize(void*, void* probs, void* gradients, const int* labels,
                                 const int* label_lengths, const int* input_lengths, int algo,
                                 void* loss, size_t* bytes);
int cudnnCTCLoss(void*, void* probs_desc, void* probs, const int* labels, const int* label_lengths,
                 const int* input_lengths, void* costs, void* gradients_desc, void* gradients,
                 int algo, void* loss, void* workspace, size_t bytes);
}

namespace {

constexpr int kConvolution = 10, kOperationX = 21, kGraphOps = 801, kGraphHandle = 800,
              kPlanConfig = 401, kHeuristicMode = 200, kHeuristicResults = 202, kFloat = 4;

// The library: descriptors with what was set, and what it was asked to execute.
struct Fake {
  int type;
  std::map<int, std::vector<std::byte>> attributes;
  std::vector<Fake*> children;
  bool finalized = false;
  int64_t engine = -1;
};
std::set<Fake*> living;
int creations = 0, finalizations = 0, refuse_type = -1;
struct Executed {
  int64_t uids[2] = {};
  void* first = nullptr;
  float second = 0;
  void* workspace = nullptr;
  Fake* plan = nullptr;
} executed;

Fake* fake(void* descriptor) {
  return living.count(static_cast<Fake*>(descriptor)) ? static_cast<Fake*>(descriptor) : nullptr;
}

int create(int type, void* out) {
  Fake* const made = std::make_unique<Fake>(Fake{type, {}, {}, false, -1}).release();
  living.insert(made);
  ++creations;
  std::memcpy(out, &made, sizeof made);
  return 0;
}
int destroy(void* descriptor) {
  const std::unique_ptr<Fake> gone(fake(descriptor));
  return living.erase(gone.get()) ? 0 : 2000;
}
int set(void* descriptor, int name, int type, int64_t count, void* elements) {
  Fake* const of = fake(descriptor);
  if (!of || of->finalized) return 2000;
  const auto* bytes = static_cast<std::byte*>(elements);
  const size_t size = static_cast<size_t>(count) * graph::element_bytes(type);
  of->attributes[name].assign(bytes, bytes + size);
  for (int64_t i = 0; type == graph::kDescriptor && i < count; ++i) {
    Fake* const child = fake(static_cast<void**>(elements)[i]);
    if (!child || !child->finalized) return 2004;
    of->children.push_back(child);
  }
  return 0;
}
int finalize(void* descriptor) {
  Fake* const of = fake(descriptor);
  if (!of || of->type == refuse_type) return of ? 3001 : 2000;
  ++finalizations;
  of->finalized = true;
  if (of->type == graph::kEngine)
    std::memcpy(&of->engine, of->attributes[graph::kEngineIndex].data(), sizeof of->engine);
  return 0;
}
// A heuristic proposes engines 7 and 8, each with one knob (3: 9).
int get(void* descriptor, int name, int, int64_t requested, void* count, void* elements) {
  Fake* const of = fake(descriptor);
  const auto told = [&](int64_t n) { std::memcpy(count, &n, sizeof n); };
  told(1);
  if (name == kHeuristicResults) {
    told(2);
    for (int64_t i = 0; elements && i < requested && i < 2; ++i) {
      Fake* const config = fake(static_cast<void**>(elements)[i]);
      config->engine = 7 + i;
      config->finalized = true;
    }
  } else if (name == graph::kConfigEngine || (name == graph::kConfigKnobs && elements)) {
    Fake* const filled = fake(*static_cast<void**>(elements));
    filled->engine = of->engine;
    filled->finalized = true;
  } else if (name == graph::kEngineIndex) {
    std::memcpy(elements, &of->engine, sizeof of->engine);
  } else if (name == graph::kKnobChoiceType) {
    const int knob = 3;
    std::memcpy(elements, &knob, sizeof knob);
  } else if (name == graph::kKnobChoiceValue) {
    const int64_t value = 9;
    std::memcpy(elements, &value, sizeof value);
  } else if (name != graph::kConfigKnobs) {
    return 3000;
  }
  return 0;
}
int execute(void*, void* plan, void* pack) {
  const Fake* const of = fake(pack);
  executed.plan = fake(plan);
  if (of->attributes.at(graph::kPackUids).size() != sizeof executed.uids) return 0;
  std::memcpy(executed.uids, of->attributes.at(graph::kPackUids).data(), sizeof executed.uids);
  void* addresses[2];
  std::memcpy(addresses, of->attributes.at(graph::kPackAddresses).data(), sizeof addresses);
  executed.first = addresses[0];
  std::memcpy(&executed.second, addresses[1], sizeof executed.second);
  std::memcpy(&executed.workspace, of->attributes.at(graph::kPackWorkspace).data(), 8);
  return 0;
}
int give_handle(void* out) {
  const uintptr_t value = 0x5000;
  std::memcpy(out, &value, sizeof value);
  return 0;
}

// Three symbols, a batch of two, five steps.
int describe(void*, int, void* type, void* rank, void* dims, void* strides) {
  const int three[] = {5, 2, 3};
  std::memcpy(dims, three, sizeof three);
  std::memcpy(strides, three, sizeof three);
  std::memset(type, 0, sizeof(int));
  std::memcpy(rank, &three[2], sizeof(int));
  return 0;
}
int seen_labels[3] = {}, seen_inputs[2] = {};
int ctc_size(void*, void*, void*, void*, void*, void*, int algo, void*, void* bytes) {
  const uint64_t needed = 100 + static_cast<uint64_t>(algo);
  std::memcpy(bytes, &needed, sizeof needed);
  return 0;
}
int ctc(void*, void*, void*, void* labels, void*, void* inputs, void*, void*, void*, int, void*,
        void*, uint64_t) {
  std::memcpy(seen_labels, labels, sizeof seen_labels);
  std::memcpy(seen_inputs, inputs, sizeof seen_inputs);
  return 0;
}

backend::Table& table() {
  static backend::Table mocked = [] {
    backend::Table t = backend::mock_table();
    t.cudnnCreate = give_handle;
    t.cudnnBackendCreateDescriptor = create;
    t.cudnnBackendDestroyDescriptor = destroy;
    t.cudnnBackendSetAttribute = set;
    t.cudnnBackendGetAttribute = get;
    t.cudnnBackendFinalize = finalize;
    t.cudnnBackendExecute = execute;
    t.cudnnGetTensorNdDescriptor = describe;
    t.cudnnGetCTCLossWorkspaceSize = ctc_size;
    t.cudnnCTCLoss = ctc;
    return t;
  }();
  return mocked;
}

OneProcess& wire() {
  static OneProcess* const made = new OneProcess(&table());
  return *made;
}

template <class Value>
void put(void* descriptor, int name, int type, const Value& value) {
  CHECK_EQ(cudnnBackendSetAttribute(descriptor, name, type,
                                    static_cast<int64_t>(sizeof value / graph::element_bytes(type)),
                                    &value),
           0);
}

void* made(int type) {
  void* descriptor = nullptr;
  CHECK_EQ(cudnnBackendCreateDescriptor(type, &descriptor), 0);
  return descriptor;
}

void* tensor(int64_t uid, bool host_value) {
  void* const descriptor = made(graph::kTensor);
  put(descriptor, graph::kTensorUid, graph::kInt64, uid);
  put(descriptor, graph::kTensorDataType, graph::kDataType, 0);
  put(descriptor, graph::kTensorByValue, graph::kBoolean, host_value);
  CHECK_EQ(cudnnBackendFinalize(descriptor), 0);
  return descriptor;
}

// All a program holds of one convolution.
struct Convolution {
  explicit Convolution(void* handle) {
    operation = made(kConvolution);
    void* const tensors[] = {x, scale};
    put(operation, kOperationX, graph::kDescriptor, tensors);
    CHECK_EQ(cudnnBackendFinalize(operation), 0);
    graph = made(graph::kOperationGraph);
    put(graph, kGraphHandle, graph::kHandle, handle);
    put(graph, kGraphOps, graph::kDescriptor, operation);
  }
  void* propose() {
    heuristic = made(graph::kEngineHeuristic);
    put(heuristic, graph::kHeuristicGraph, graph::kDescriptor, graph);
    put(heuristic, kHeuristicMode, 8, 0);
    CHECK_EQ(cudnnBackendFinalize(heuristic), 0);
    void* configs[4];
    for (void*& config : configs) config = made(graph::kEngineConfig);
    int64_t count = 0;
    CHECK_EQ(cudnnBackendGetAttribute(heuristic, kHeuristicResults, graph::kDescriptor, 4, &count,
                                      configs),
             0);
    CHECK_EQ(count, 2);
    for (int i : {0, 2, 3}) CHECK_EQ(cudnnBackendDestroyDescriptor(configs[i]), 0);
    return configs[1];
  }
  void end() {
    for (void* each : {x, scale, operation, graph, heuristic})
      if (each) CHECK_EQ(cudnnBackendDestroyDescriptor(each), 0);
  }
  void* x = tensor(11, false);
  void* scale = tensor(12, true);
  void *operation, *graph, *heuristic = nullptr;
};

void run(void* handle, void* plan, float value) {
  void* const pack = made(graph::kVariantPack);
  const int64_t uids[] = {11, 12};
  const void* const addresses[] = {reinterpret_cast<void*>(ring::kDeviceWindowBase), &value};
  const uint64_t workspace = ring::kDeviceWindowBase + 512;
  put(pack, graph::kPackUids, graph::kInt64, uids);
  put(pack, graph::kPackAddresses, graph::kAddress, addresses);
  put(pack, graph::kPackWorkspace, graph::kAddress, workspace);
  CHECK_EQ(cudnnBackendExecute(handle, plan, pack), 2004);
  CHECK_EQ(cudnnBackendFinalize(pack), 0);
  CHECK_EQ(cudnnBackendExecute(handle, plan, pack), 0);
  CHECK_EQ(cudnnBackendDestroyDescriptor(pack), 0);
}

void* library_handle() {
  static void* const handle = [] {
    void* made = nullptr;
    CHECK_EQ(cudnnCreate(&made), 0);
    return made;
  }();
  return handle;
}

}  // namespace

TEST(a_convolution_is_planned_and_executed) {
  OneProcess& w = wire();
  void* const handle = library_handle();
  Convolution convolution(handle);
  w.calls();
  CHECK_EQ(creations, 0);  // so far everything is the client's
  CHECK_EQ(cudnnBackendFinalize(convolution.graph), 0);
  CHECK_EQ(finalizations, 4);  // two tensors, operation, graph
  void* const config = convolution.propose();
  CHECK_EQ(finalizations, 5);  // what the server has is not made again
  void* const plan = made(graph::kPlan);
  put(plan, kPlanConfig, graph::kDescriptor, config);
  CHECK_EQ(cudnnBackendFinalize(plan), 0);
  CHECK_EQ(finalizations, 6);
  CHECK_EQ(cudnnBackendSetAttribute(plan, kPlanConfig, graph::kDescriptor, 1, &config), 2000);
  convolution.end();  // what a plan is made of may be ended before it is used
  CHECK_EQ(cudnnBackendDestroyDescriptor(config), 0);
  const int before = creations;
  run(handle, plan, 2.5f);
  w.calls();
  CHECK_EQ(creations, before + 1);  // the variant pack, for this execution
  CHECK_EQ(executed.uids[1], 12);
  CHECK(executed.first == reinterpret_cast<void*>(ring::kDeviceWindowBase));
  CHECK_EQ(executed.second, 2.5f);  // read when the program called
  CHECK(executed.workspace == reinterpret_cast<void*>(ring::kDeviceWindowBase + 512));
  CHECK_EQ(executed.plan->children[0]->engine, 8);
  CHECK_EQ(cudnnBackendDestroyDescriptor(plan), 0);
  w.calls();
  CHECK_EQ(living.size(), size_t{0});
}

TEST(one_command_makes_a_plan_in_a_new_server) {
  OneProcess& w = wire();
  Convolution convolution(library_handle());
  CHECK_EQ(cudnnBackendFinalize(convolution.graph), 0);
  void* const config = convolution.propose();
  void* const plan = made(graph::kPlan);
  put(plan, kPlanConfig, graph::kDescriptor, config);
  CHECK_EQ(cudnnBackendFinalize(plan), 0);
  std::vector<client::DescriptorPtr> all;
  const auto tree = client::describe_tree(client::shared_descriptor(plan), &all);
  CHECK_EQ(all.size(), size_t{8});  // tensors, operation, graph, engine, knob, configuration, plan
  w.calls();
  // The other server has the handle, from its own log, and nothing else.
  cmd::cudnnCreate handle{client::library_object(library_handle(), ObjectType::cudnn)->id};
  CHECK_EQ(w.refused(Call::cudnnCreate, handle), "");
  const int before = finalizations;
  const cmd::cudnnBackendFinalize finalize{all.back()->id};
  CHECK_EQ(w.refused(Call::cudnnBackendFinalize, finalize, tree), "");
  CHECK_EQ(finalizations, before + 8);
  CHECK_EQ(w.refused(Call::cudnnBackendFinalize, finalize, tree), "");  // it has all of it now
  CHECK_EQ(finalizations, before + 8);
  cmd::cudnnBackendExecute execution{};
  execution.handle = handle.handle;
  execution.plan = finalize.descriptor;
  CHECK_EQ(w.refused(Call::cudnnBackendExecute, execution), "");
  for (const client::DescriptorPtr& each : all)
    CHECK_EQ(w.refused(Call::cudnnBackendDestroyDescriptor,
                       cmd::cudnnBackendDestroyDescriptor{each->id}),
             "");
  CHECK_EQ(w.refused(Call::cudnnBackendDestroyDescriptor,
                     cmd::cudnnBackendDestroyDescriptor{all[0]->id}),
           "");  // one that was not made again
  all.clear();
  convolution.end();
  CHECK_EQ(cudnnBackendDestroyDescriptor(config), 0);
  CHECK_EQ(cudnnBackendDestroyDescriptor(plan), 0);
  w.calls();
  CHECK_EQ(living.size(), size_t{0});
}

TEST(what_the_library_refuses_leaves_nothing_behind) {
  OneProcess& w = wire();
  Convolution convolution(library_handle());
  refuse_type = graph::kOperationGraph;
  CHECK_EQ(cudnnBackendFinalize(convolution.graph), 3001);
  CHECK_EQ(living.size(), size_t{0});
  refuse_type = kConvolution;  // a part that only the library can judge
  CHECK_EQ(cudnnBackendFinalize(convolution.graph), 3001);
  CHECK_EQ(living.size(), size_t{0});
  refuse_type = -1;
  CHECK_EQ(cudnnBackendFinalize(convolution.graph), 0);
  CHECK_EQ(living.size(), size_t{4});
  convolution.end();
  w.calls();
  CHECK_EQ(living.size(), size_t{0});
}

TEST(mistakes_of_programs_have_the_codes_of_cudnn) {
  void* const descriptor = made(graph::kTensor);
  int64_t value = 5, count = 0, back = 0;
  CHECK_EQ(cudnnBackendSetAttribute(nullptr, 900, graph::kInt64, 1, &value), 2000);
  CHECK_EQ(cudnnBackendSetAttribute(descriptor, 900, 99, 1, &value), 2010);
  CHECK_EQ(cudnnBackendSetAttribute(descriptor, 900, graph::kInt64, 1, nullptr), 2002);
  CHECK_EQ(cudnnBackendSetAttribute(descriptor, 900, graph::kDescriptor, 1, &descriptor), 2004);
  CHECK_EQ(cudnnBackendGetAttribute(descriptor, 900, graph::kInt64, 1, &count, &back), 2004);
  put(descriptor, 900, graph::kInt64, value);
  CHECK_EQ(cudnnBackendFinalize(descriptor), 0);
  CHECK_EQ(cudnnBackendGetAttribute(descriptor, 900, kFloat, 1, &count, &back), 2010);
  CHECK_EQ(cudnnBackendGetAttribute(descriptor, 900, graph::kInt64, 1, &count, &back), 0);
  CHECK_EQ(back, 5);
  CHECK_EQ(cudnnBackendDestroyDescriptor(descriptor), 0);
  wire().calls();
  CHECK_EQ(living.size(), size_t{0});
}

TEST(labels_in_host_memory_travel_as_many_as_the_descriptor_says) {
  OneProcess& w = wire();
  void *probs = nullptr, *loss = nullptr;
  CHECK_EQ(cudnnCreateTensorDescriptor(&probs), 0);
  CHECK_EQ(cudnnCreateCTCLossDescriptor(&loss), 0);
  const int labels[] = {1, 2, 1}, lengths[] = {1, 2}, inputs[] = {5, 4}, negative[] = {-1, 2};
  size_t bytes = 0;
  const auto size = [&](const int* of_labels) {
    return cudnnGetCTCLossWorkspaceSize(library_handle(), probs, nullptr, labels, of_labels, inputs,
                                        1, loss, &bytes);
  };
  CHECK_EQ(size(lengths), 0);
  CHECK_EQ(bytes, size_t{101});
  CHECK_EQ(size(negative), 2000);
  CHECK_EQ(size(nullptr), 2000);
  CHECK_EQ(cudnnCTCLoss(library_handle(), probs, nullptr, labels, lengths, inputs, nullptr, nullptr,
                        nullptr, 0, loss, nullptr, bytes),
           0);
  w.calls();
  CHECK_EQ(seen_labels[1], 2);
  CHECK_EQ(seen_inputs[1], 4);
  CHECK_EQ(cudnnCTCLoss(library_handle(), loss, nullptr, labels, lengths, inputs, nullptr, nullptr,
                        nullptr, 0, loss, nullptr, bytes),
           2000);
}

TEST(the_server_counts_labels_itself) {
  OneProcess& w = wire();
  const auto id = [](ObjectType type) {
    return ObjectId::make(static_cast<uint8_t>(type), 1 << 21).value;
  };
  struct {
    cmd::cudnnGetCTCLossWorkspaceSize c{};
    int labels[4] = {1, 2, 1, 0}, lengths[2] = {1, 2}, inputs[2] = {5, 4};
  } size;
  size.c.handle = id(ObjectType::cudnn);
  size.c.probs_desc = id(ObjectType::cudnn_tensor);
  size.c.loss = id(ObjectType::cudnn_ctc_loss);
  size.c.batch = 2;
  size.c.labels = 3;
  constexpr Call kCall = Call::cudnnGetCTCLossWorkspaceSize;
  CHECK(w.refused(kCall, size).find("names no object") != std::string::npos);
  CHECK_EQ(w.refused(Call::cudnnCreate, cmd::cudnnCreate{size.c.handle}), "");
  CHECK_EQ(w.refused(Call::cudnnCreateTensorDescriptor,
                     cmd::cudnnCreateTensorDescriptor{size.c.probs_desc}),
           "");
  CHECK_EQ(
      w.refused(Call::cudnnCreateCTCLossDescriptor, cmd::cudnnCreateCTCLossDescriptor{size.c.loss}),
      "");
  CHECK_EQ(w.refused(kCall, size), "");
  size.lengths[0] = 2;  // more labels than there are
  CHECK(w.refused(kCall, size).find("not as long") != std::string::npos);
  size.lengths[0] = -1;
  CHECK(w.refused(kCall, size).find("not as long") != std::string::npos);
  size.c.batch = 1;  // the descriptor says two
  CHECK(w.refused(kCall, size).find("not as long") != std::string::npos);
  size.c.labels = 1u << 30;  // times four is nothing
  CHECK(w.refused(kCall, size).find("not as long") != std::string::npos);
}

TEST(the_server_believes_no_tree) {
  OneProcess& w = wire();
  const auto id = [](uint64_t n) {
    return ObjectId::make(static_cast<uint8_t>(ObjectType::cudnn_descriptor), n).value;
  };
  struct One {
    graph::Node node;
    graph::NodeAttribute attribute;
    uint64_t value;
  } one{{id(1 << 20), graph::kTensor, 1}, {1, 900, graph::kInt64, 8, 0}, 7};
  const auto sent = [&](const One& tree, size_t bytes = sizeof(One)) {
    return w.refused(Call::cudnnBackendFinalize, cmd::cudnnBackendFinalize{tree.node.id},
                     std::as_bytes(std::span(&tree, 1)).first(bytes));
  };
  CHECK_EQ(sent(one, sizeof one - 8), "a tree of cuDNN descriptors is damaged");
  CHECK_EQ(sent(one, sizeof one - 40), "a tree of cuDNN descriptors is damaged");
  One bad = one;
  bad.attribute.count = 2;  // more than there are bytes
  CHECK_EQ(sent(bad), "a tree of cuDNN descriptors is damaged");
  bad = one;
  bad.attribute.type = 77;
  CHECK_EQ(sent(bad), "a tree of cuDNN descriptors is damaged");
  bad = one;
  bad.attribute.type = graph::kDescriptor;  // 7 is none
  CHECK_EQ(sent(bad), "a tree of cuDNN descriptors is damaged");
  bad = one;
  bad.node.id = 5;  // no number of a descriptor
  CHECK_EQ(sent(bad), "a tree of cuDNN descriptors is damaged");
  CHECK_EQ(living.size(), size_t{0});
  CHECK_EQ(sent(one), "");
  cmd::cudnnBackendGetAttribute get{};
  get.descriptor = one.node.id;
  get.requested = 1 << 20;
  get.type = graph::kInt64;
  get.array = 1;
  CHECK(w.refused(Call::cudnnBackendGetAttribute, get).find("asks for [1048576]") !=
        std::string::npos);
  get.requested = 1;
  get.type = graph::kDescriptor;
  CHECK(w.refused(Call::cudnnBackendGetAttribute, get).find("cannot be filled") !=
        std::string::npos);
  cmd::cudnnBackendExecute execution{};
  CHECK(!w.refused(Call::cudnnBackendExecute, execution).empty());
  CHECK_EQ(w.refused(Call::cudnnBackendDestroyDescriptor,
                     cmd::cudnnBackendDestroyDescriptor{one.node.id}),
           "");
  CHECK_EQ(living.size(), size_t{0});
}

CHECK_MAIN
