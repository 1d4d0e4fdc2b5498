// cuDNN's graphs: descriptors are made here when the library has to look at them.
#include "api/cudnn_graph.h"

#include "server/handlers/library.h"

namespace pyft::server {
namespace {

constexpr int kFailed = 4000;  // CUDNN_STATUS_INTERNAL_ERROR

bool find_descriptor(Session& session, uint64_t id, void** out) {
  return find_object(session, id, ObjectType::cudnn_descriptor, out);
}

// Reads what a client wrote: nothing is believed that is not there.
struct Reader {
  Body left;
  template <class Value>
  bool read(Value* out) {
    if (left.size() < sizeof *out) return false;
    std::memcpy(out, left.data(), sizeof *out);
    left = left.subspan(sizeof *out);
    return true;
  }
  bool take(size_t bytes, Body* out) {
    const size_t padded = (bytes + 7) & ~size_t{7};
    if (bytes > left.size() || padded > left.size()) return false;
    *out = left.first(bytes);
    left = left.subspan(padded);
    return true;
  }
};

// Makes the descriptors of one tree; ends them again if one cannot be made.
class Builder {
 public:
  Builder(Session& session, Body tree) : session_(session), reader_{tree} {}
  // False: the tree is damaged. The library's code is in code() then.
  bool build();
  int code() const { return code_; }
  bool made(uint64_t id) const {
    void* found = nullptr;
    return find_descriptor(session_, id, &found);
  }

 private:
  bool build_node(const graph::Node& node);
  bool attribute(void* to);
  bool elements(const graph::NodeAttribute& head, Body bytes, std::vector<uint64_t>* out);
  void undo();

  Session& session_;
  Reader reader_;
  int code_ = 0;
  std::vector<uint64_t> made_;
};

bool Builder::build() {
  graph::Node node;
  while (!reader_.left.empty() && code_ == 0)
    if (!reader_.read(&node) || !build_node(node)) {
      undo();
      return false;
    }
  if (code_) undo();
  return true;
}

bool Builder::build_node(const graph::Node& node) {
  const backend::Table& api = session_.backend();
  void* descriptor = nullptr;
  const bool known = find_descriptor(session_, node.id, &descriptor);
  if (!known) code_ = api.cudnnBackendCreateDescriptor(node.type, &descriptor);
  if (!known && code_ == 0) {
    if (!keep_object(session_, node.id, ObjectType::cudnn_descriptor, descriptor)) {
      api.cudnnBackendDestroyDescriptor(descriptor);
      return false;
    }
    made_.push_back(node.id);
  }
  for (uint32_t i = 0; i < node.attributes; ++i)
    if (!attribute(known || code_ ? nullptr : descriptor)) return false;
  if (!known && code_ == 0) code_ = api.cudnnBackendFinalize(descriptor);
  return true;
}

// Sets one attribute, or skips it where `to` is null.
bool Builder::attribute(void* to) {
  graph::NodeAttribute head;
  Body bytes;
  if (!reader_.read(&head) || !reader_.take(head.bytes, &bytes)) return false;
  const uint64_t size = graph::element_bytes(head.type);
  if (!size || head.count < 0 || head.bytes % size || head.bytes / size != uint64_t(head.count))
    return false;
  if (!to || code_) return true;
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8 + 1);
  if (!elements(head, bytes, &aligned)) return false;
  code_ = session_.backend().cudnnBackendSetAttribute(to, head.name, head.type, head.count,
                                                      aligned.data());
  return true;
}

bool Builder::elements(const graph::NodeAttribute& head, Body bytes, std::vector<uint64_t>* out) {
  if (!bytes.empty()) std::memcpy(out->data(), bytes.data(), bytes.size());
  if (head.type != graph::kDescriptor && head.type != graph::kHandle) return true;
  const ObjectType kind =
      head.type == graph::kHandle ? ObjectType::cudnn : ObjectType::cudnn_descriptor;
  for (int64_t i = 0; i < head.count; ++i) {
    void* object = nullptr;
    if (!find_object(session_, (*out)[static_cast<size_t>(i)], kind, &object)) return false;
    (*out)[static_cast<size_t>(i)] = reinterpret_cast<uint64_t>(object);
  }
  return true;
}

void Builder::undo() {
  for (const uint64_t id : made_) {
    void* descriptor = nullptr;
    if (!find_descriptor(session_, id, &descriptor)) continue;
    forget_object(session_, id);
    session_.backend().cudnnBackendDestroyDescriptor(descriptor);
  }
}

// A variant pack for one execution.
struct Pack {
  explicit Pack(const backend::Table& api) : api(api) {}
  Pack(const Pack&) = delete;
  ~Pack() {
    if (descriptor) api.cudnnBackendDestroyDescriptor(descriptor);
  }
  int fill(std::vector<graph::Operand>& operands, const cmd::cudnnBackendExecute& c) {
    std::vector<int64_t> uids;
    std::vector<void*> addresses;
    for (graph::Operand& each : operands) {
      uids.push_back(each.uid);
      addresses.push_back(each.value_bytes ? each.value : reinterpret_cast<void*>(each.address));
    }
    int code = api.cudnnBackendCreateDescriptor(graph::kVariantPack, &descriptor);
    const auto set = [&](int32_t name, int32_t type, size_t count, void* from) {
      if (code == 0)
        code =
            api.cudnnBackendSetAttribute(descriptor, name, type, static_cast<int64_t>(count), from);
    };
    void* workspace = reinterpret_cast<void*>(c.workspace);
    set(graph::kPackUids, graph::kInt64, uids.size(), uids.data());
    set(graph::kPackAddresses, graph::kAddress, addresses.size(), addresses.data());
    if (c.has_workspace) set(graph::kPackWorkspace, graph::kAddress, 1, &workspace);
    return code ? code : api.cudnnBackendFinalize(descriptor);
  }
  const backend::Table& api;
  void* descriptor = nullptr;
};

// The descriptors an answer is to fill: made here, known by the client's numbers from now on.
bool make_wanted(Session& session, Body tail, int64_t count, std::vector<uint64_t>* made,
                 std::vector<void*>* out) {
  Reader reader{tail};
  for (int64_t i = 0; i < count; ++i) {
    graph::Wanted wanted;
    void* descriptor = nullptr;
    if (!reader.read(&wanted) || find_descriptor(session, wanted.id, &descriptor)) return false;
    if (session.backend().cudnnBackendCreateDescriptor(wanted.type, &descriptor)) return true;
    if (!keep_object(session, wanted.id, ObjectType::cudnn_descriptor, descriptor)) {
      session.backend().cudnnBackendDestroyDescriptor(descriptor);
      return false;
    }
    made->push_back(wanted.id);
    out->push_back(descriptor);
  }
  return true;
}

bool complete(const backend::Table& api) {
  return api.cudnnBackendCreateDescriptor && api.cudnnBackendDestroyDescriptor &&
         api.cudnnBackendSetAttribute && api.cudnnBackendGetAttribute && api.cudnnBackendFinalize &&
         api.cudnnBackendExecute;
}

}  // namespace

Status do_cudnnBackendFinalize(Session& session, const EntryHeader& header,
                               const cmd::cudnnBackendFinalize& c, Body, Body payload) {
  if (!complete(session.backend()))
    return missing_object_call(session, header, "cudnnBackendFinalize");
  Builder builder(session, payload);
  if (!builder.build()) return Status::broken("a tree of cuDNN descriptors is damaged");
  if (builder.code() == 0 && !builder.made(c.descriptor)) return bad_handle(c.descriptor);
  return finish_object_call(session, header, "cudnnBackendFinalize", builder.code(), {});
}

Status do_cudnnBackendGetAttribute(Session& session, const EntryHeader& header,
                                   const cmd::cudnnBackendGetAttribute& c, Body tail, Body) {
  if (!complete(session.backend()))
    return missing_object_call(session, header, "cudnnBackendGetAttribute");
  void* descriptor = nullptr;
  if (!find_descriptor(session, c.descriptor, &descriptor)) return bad_handle(c.descriptor);
  const uint64_t size = graph::element_bytes(c.type);
  const bool fills = c.array && c.type == graph::kDescriptor;
  const uint64_t most = fills ? 4096 : ring::kReplyInlineBytes / (size ? size : 1);
  if (!size || c.requested < 0 || (c.array && static_cast<uint64_t>(c.requested) > most))
    return Status::broken("cudnnBackendGetAttribute asks for [" + std::to_string(c.requested) +
                          "] elements of type [" + std::to_string(c.type) + "]");
  std::vector<uint64_t> made;
  std::vector<void*> wanted;
  if (fills && !make_wanted(session, tail, c.requested, &made, &wanted))
    return Status::broken("cudnnBackendGetAttribute names descriptors that cannot be filled");
  alignas(16) std::byte elements[ring::kReplyInlineBytes] = {};
  int64_t count = 0;
  int code = kFailed;
  if (!fills || wanted.size() == static_cast<size_t>(c.requested))
    code =
        session.backend().cudnnBackendGetAttribute(descriptor, c.name, c.type, c.requested, &count,
                                                   !c.array ? nullptr
                                                   : fills  ? static_cast<void*>(wanted.data())
                                                            : elements);
  for (size_t i = 0; code && i < made.size(); ++i) {
    forget_object(session, made[i]);
    session.backend().cudnnBackendDestroyDescriptor(wanted[i]);
  }
  const uint64_t values[] = {static_cast<uint64_t>(count)};
  const int64_t told = count < c.requested ? count : c.requested;
  const bool bytes = code == 0 && c.array && !fills && told > 0;
  return finish_object_call(session, header, "cudnnBackendGetAttribute", code, values,
                            bytes ? Body(elements, static_cast<size_t>(told) * size) : Body());
}

Status do_cudnnBackendExecute(Session& session, const EntryHeader& header,
                              const cmd::cudnnBackendExecute& c, Body tail, Body) {
  if (!complete(session.backend()))
    return missing_object_call(session, header, "cudnnBackendExecute");
  void *handle = nullptr, *plan = nullptr;
  if (!find_object(session, c.handle, ObjectType::cudnn, &handle)) return bad_handle(c.handle);
  if (!find_descriptor(session, c.plan, &plan)) return bad_handle(c.plan);
  if (tail.size() / sizeof(graph::Operand) < c.count)
    return Status::broken("a variant pack has fewer than [" + std::to_string(c.count) +
                          "] tensors");
  std::vector<graph::Operand> operands(c.count);
  if (c.count) std::memcpy(operands.data(), tail.data(), c.count * sizeof(graph::Operand));
  Pack pack(session.backend());
  int code = pack.fill(operands, c);
  if (code == 0) code = session.backend().cudnnBackendExecute(handle, plan, pack.descriptor);
  return finish_object_call(session, header, "cudnnBackendExecute", code, {});
}

// A number without a descriptor is no mistake: a new server has only what lived on.
Status do_cudnnBackendDestroyDescriptor(Session& session, const EntryHeader& header,
                                        const cmd::cudnnBackendDestroyDescriptor& c, Body, Body) {
  void* descriptor = nullptr;
  if (!complete(session.backend()) || !find_descriptor(session, c.descriptor, &descriptor))
    return Status::good();
  forget_object(session, c.descriptor);
  return finish_object_call(session, header, "cudnnBackendDestroyDescriptor",
                            session.backend().cudnnBackendDestroyDescriptor(descriptor), {});
}

}  // namespace pyft::server
