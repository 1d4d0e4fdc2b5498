#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/resources/module_image.h"
#include "pyft/log.h"
#include "server/handlers/handlers.h"
#include "server/handlers/live_objects.h"
#include "server/handlers/moved_variables.h"
#include "server/handlers/ready_modules.h"

namespace pyft::server {
namespace {

constexpr size_t kMaxName = 64 << 10;

constexpr uint64_t kMostPadding = 256;  // between variables of one section

struct LoadedModules {
  std::map<uint64_t, LoadedModule> by_handle;
  bool by_name = false;
};

}  // namespace

// What is no variable's memory is not looked at: only padding.
std::vector<checkpoint::MemoryRange> find_variables(const backend::Table& api, CUmodule module,
                                                    std::span<const std::byte> image,
                                                    std::string* why) {
  std::vector<std::string> names;
  if (checkpoint::variable_names(image, &names, why)) why->clear();
  struct Variable : checkpoint::MemoryRange {
    size_t number;
  };
  std::vector<Variable> found, merged;
  for (const std::string& name : names) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (api.cuModuleGetGlobal_v2(&address, &bytes, module, name.c_str()) == 0 && bytes &&
        !checkpoint::is_empty_object(name, bytes))
      found.push_back({{address, bytes}, found.size()});
  }
  std::ranges::sort(found, {}, &checkpoint::MemoryRange::address);
  for (const Variable& one : found)
    if (!merged.empty() && one.address <= merged.back().end() + kMostPadding) {
      merged.back().bytes = std::max(merged.back().end(), one.end()) - merged.back().address;
      merged.back().number = std::min(merged.back().number, one.number);
    } else {
      merged.push_back(one);
    }
  std::ranges::sort(merged, {}, &Variable::number);
  return {merged.begin(), merged.end()};
}

namespace {

// The number of a kernel's next parameter, false if there is none.
bool parameter_of(const backend::Table& api, CUfunction function,
                  const std::vector<checkpoint::KernelParameter>* known, uint32_t number,
                  size_t* offset, size_t* bytes) {
  if (api.cuFuncGetParamInfo) return api.cuFuncGetParamInfo(function, number, offset, bytes) == 0;
  if (!known || number >= known->size()) return false;
  *offset = (*known)[number].offset;
  *bytes = (*known)[number].bytes;
  return true;
}

// `known`: its parameters, for a driver that does not tell them. Without either it is refused: a
// launch would give it none.
KernelInfo kernel_info(const backend::Table& api, CUfunction function,
                       const std::vector<checkpoint::KernelParameter>* known, int* code) {
  KernelInfo info;
  if (!api.cuFuncGetParamInfo && !known) *code = CUDA_ERROR_NOT_SUPPORTED;
  for (uint32_t i = 0; i < KernelInfo::kAttributes; ++i) {
    int value = 0;  // attributes the backend does not know stay zero
    if (api.cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(i), function) == 0)
      info.attributes[i] = value;
  }
  for (size_t offset = 0, bytes = 0;
       parameter_of(api, function, known, info.param_count, &offset, &bytes);) {
    if (info.param_count == KernelInfo::kMaxParams) {
      *code = CUDA_ERROR_NOT_SUPPORTED;
      break;
    }
    info.params[info.param_count++] = {static_cast<uint16_t>(offset), static_cast<uint16_t>(bytes)};
    if (offset + bytes > info.param_bytes) info.param_bytes = static_cast<uint32_t>(offset + bytes);
  }
  return info;
}

// Drivers before CUDA 12.4 do not tell where a kernel's parameters lie.
void learn_parameters(const backend::Table& api, Body image, LoadedModule* out) {
  std::string why;
  if (api.cuFuncGetParamInfo || checkpoint::kernel_parameters(image, &out->parameters, &why))
    return;
  PYFT_LOG(kServer, kWarning,
           "the parameters of a module's kernels are not known, as this driver does not tell them: "
           "%s; its kernels are refused: install driver 550 or newer",
           why.c_str());
}

int load_module(Session& session, uint64_t handle, Body image, LoadedModule* out) {
  if (take_ready_module(session, handle, image, out)) return CUDA_SUCCESS;
  const backend::Table& api = session.backend();
  int code = api.cuModuleLoadData(&out->module, image.data());
  if (code == CUDA_ERROR_OUT_OF_MEMORY && session.make_room())
    code = api.cuModuleLoadData(&out->module, image.data());
  if (code || !session.state<LoadedModules>().by_name) return code;
  std::string why;
  out->variables = find_variables(api, out->module, image, &why);
  if (!why.empty())
    PYFT_LOG(kServer, kWarning, "variables of a module are not snapshotted: %s", why.c_str());
  return code;
}

// Of a kernel whose driver does not tell them; null if they are not known.
const std::vector<checkpoint::KernelParameter>* known_parameters(Session& session, uint64_t module,
                                                                 const std::string& kernel) {
  const auto& modules = session.state<LoadedModules>().by_handle;
  const auto loaded = modules.find(module);
  if (loaded == modules.end()) return nullptr;
  const auto found = loaded->second.parameters.find(kernel);
  return found == loaded->second.parameters.end() ? nullptr : &found->second;
}

std::string name_of(Body payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

}  // namespace

const std::map<uint64_t, LoadedModule>& loaded_modules(Session& session) {
  return session.state<LoadedModules>().by_handle;
}

void look_up_variables(Session& session) {
  session.state<LoadedModules>().by_name = true;
}

Status do_cuModuleLoadData(Session& session, const EntryHeader& header,
                           const cmd::cuModuleLoadData& c, Body, Body payload) {
  if (payload.size() < 16) return Status::broken("a module of less than 16 bytes");
  LoadedModule made;
  const int code = load_module(session, c.handle, payload, &made);
  const Handle handle{c.handle};
  if (code == 0 && (handle.kind() != HandleKind::kModule ||
                    !session.table(HandleKind::kModule).bind(handle, made.module)))
    return bad_handle(c.handle);
  if (code == 0) learn_parameters(session.backend(), payload, &made);
  if (code == 0) session.state<LoadedModules>().by_handle[c.handle] = std::move(made);
  return finish(session, header, "cuModuleLoadData", Domain::kCuda, code);
}

Status do_cuModuleUnload(Session& session, const EntryHeader& header, const cmd::cuModuleUnload& c,
                         Body, Body) {
  void* module = session.table(HandleKind::kModule).unbind(Handle{c.handle});
  if (!module) return bad_handle(c.handle);
  session.state<LoadedModules>().by_handle.erase(c.handle);
  return finish(session, header, "cuModuleUnload", Domain::kCuda,
                session.backend().cuModuleUnload(static_cast<CUmodule>(module)));
}

Status do_cuModuleGetFunction(Session& session, const EntryHeader& header,
                              const cmd::cuModuleGetFunction& c, Body, Body payload) {
  CUmodule module;
  if (!resolve_module(session, c.module, &module)) return bad_handle(c.module);
  if (payload.size() > kMaxName) return Status::broken("a kernel name is longer than 64 KiB");
  CUfunction function = nullptr;
  const std::string name = name_of(payload);
  int code = session.backend().cuModuleGetFunction(&function, module, name.c_str());
  if (code != 0) return finish(session, header, "cuModuleGetFunction", Domain::kCuda, code);
  const KernelInfo info =
      kernel_info(session.backend(), function, known_parameters(session, c.module, name), &code);
  const Handle handle{c.handle};
  if (code == 0 && (handle.kind() != HandleKind::kKernel ||
                    !session.table(HandleKind::kKernel).bind(handle, function)))
    return bad_handle(c.handle);
  return finish(session, header, "cuModuleGetFunction", Domain::kCuda, code, nullptr, 0,
                std::as_bytes(std::span(&info, 1)));
}

Status do_cuModuleGetGlobal_v2(Session& session, const EntryHeader& header,
                               const cmd::cuModuleGetGlobal_v2& c, Body, Body payload) {
  CUmodule module;
  if (!resolve_module(session, c.module, &module)) return bad_handle(c.module);
  if (payload.size() > kMaxName) return Status::broken("a variable name is longer than 64 KiB");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const int code =
      session.backend().cuModuleGetGlobal_v2(&address, &bytes, module, name_of(payload).c_str());
  // Kept in the object log, so that each server knows it of the ones before.
  const auto known = session.state<LoadedModules>().by_handle.find(c.module);
  if (code == 0 && known != session.state<LoadedModules>().by_handle.end())
    known->second.escaped = true;
  if (session.recovery().replaying() && session.state<MovedVariables>().moved_to(address))
    session.recovery().fail(ring::FaultKind::kUnrecoverable, 0,
                            "the program was told where variable [" + name_of(payload) +
                                "] lay, and it is at [" + std::to_string(address) + "] now");
  const uint64_t values[] = {address, bytes};
  return finish(session, header, "cuModuleGetGlobal_v2", Domain::kCuda, code, values, 2);
}

Status do_cuFuncSetAttribute(Session& session, const EntryHeader& header,
                             const cmd::cuFuncSetAttribute& c, Body, Body) {
  CUfunction function;
  if (!resolve_kernel(session, c.kernel, &function)) return bad_handle(c.kernel);
  const auto attribute = static_cast<CUfunction_attribute>(c.attribute);
  return finish(session, header, "cuFuncSetAttribute", Domain::kCuda,
                session.backend().cuFuncSetAttribute(function, attribute, c.value));
}

Status do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    Session& session, const EntryHeader& header,
    const cmd::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags& c, Body, Body) {
  CUfunction function;
  if (!resolve_kernel(session, c.kernel, &function)) return bad_handle(c.kernel);
  int blocks = 0;
  const auto query = session.backend().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
  if (!query) return missing(session, header, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 801);
  const int code = query(&blocks, function, c.block_size, c.shared_bytes, c.flags);
  const uint64_t values[] = {static_cast<uint64_t>(blocks)};
  return finish(session, header, "cuOccupancyMaxActiveBlocksPerMultiprocessor", Domain::kCuda, code,
                values, 1);
}

}  // namespace pyft::server
