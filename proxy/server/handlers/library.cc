#include "server/handlers/library.h"

#include <memory>

namespace pyft::server {
namespace {

struct Objects {
  std::unordered_map<uint64_t, void*> by_id;
  std::vector<std::unique_ptr<std::byte[]>> scratch;
  uint64_t scratch_bytes = 0;
};

bool of_type(uint64_t id, ObjectType type) {
  const ObjectId object{id};
  return object.kind() == HandleKind::kLibraryObject &&
         object.type_number() == static_cast<uint8_t>(type);
}

}  // namespace

bool find_object(Session& session, uint64_t id, ObjectType type, void** out) {
  if (!of_type(id, type)) return false;
  const auto& objects = session.state<Objects>().by_id;
  const auto found = objects.find(id);
  if (found == objects.end()) return false;
  *out = found->second;
  return true;
}

bool keep_object(Session& session, uint64_t id, ObjectType type, void* object) {
  return of_type(id, type) && session.state<Objects>().by_id.emplace(id, object).second;
}

void forget_object(Session& session, uint64_t id) {
  session.state<Objects>().by_id.erase(id);
}

void* host_scratch(Session& session, uint64_t bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 30;  // a hostile client must not be believed
  Objects& objects = session.state<Objects>();
  if (bytes > kMost) return nullptr;
  if (bytes > objects.scratch_bytes) {
    objects.scratch_bytes = bytes < objects.scratch_bytes * 2 ? objects.scratch_bytes * 2 : bytes;
    objects.scratch.push_back(std::make_unique_for_overwrite<std::byte[]>(objects.scratch_bytes));
  }
  return objects.scratch.empty() ? nullptr : objects.scratch.back().get();
}

void* HostArrays::in(uint32_t given, uint64_t needed) {
  if (given == kNoArray) return nullptr;
  const size_t padded = (size_t{given} + 7) & ~size_t{7};
  if (given != needed || padded > tail_.size()) {
    ok_ = false;
    return nullptr;
  }
  const Body bytes = tail_.first(given);
  tail_ = tail_.subspan(padded);
  copies_.emplace_back(bytes.begin(), bytes.end());
  return copies_.back().data();
}

void* HostArrays::out(uint32_t given, uint64_t needed) {
  if (given == kNoArray) return nullptr;
  const size_t padded = (size_t{given} + 7) & ~size_t{7};
  if (given != needed || padded > sizeof results_ - used_) {
    ok_ = false;
    return nullptr;
  }
  used_ += padded;
  return results_ + used_ - padded;
}

Status bad_arrays(const char* call) {
  return Status::broken(std::string("the arrays of [") + call + "] are not as long as it says");
}

Status missing_object_call(Session& session, const EntryHeader& header, const char* name) {
  return missing(session, header, name, CUDA_ERROR_NOT_SUPPORTED);
}

Status finish_object_call(Session& session, const EntryHeader& header, const char* name, int code,
                          std::span<const uint64_t> values, Body results) {
  return finish(session, header, name, Domain::kLibrary, code, values.data(), values.size(),
                results);
}

Status do_pyftOpenLibrary(Session& session, const EntryHeader& header,
                          const cmd::pyftOpenLibrary& c, Body, Body) {
  const uint64_t number = ObjectId{c.library}.number();
  if (number >= static_cast<uint64_t>(ObjectLibrary::kCount))
    return Status::broken("library [" + std::to_string(number) + "] does not exist");
  const auto open = session.backend().open_library;
  const std::string why = open ? open(kObjectLibraryNames[number]) : std::string();
  return session.reply(header, why.empty() ? 0 : CUDA_ERROR_NOT_SUPPORTED, {},
                       std::as_bytes(std::span(why)));
}

namespace {

Status version(Session& session, const EntryHeader& header, const char* name,
               uint64_t (*function)()) {
  if (!function) return missing_object_call(session, header, name);
  const uint64_t value = function();
  return session.reply(header, 0, {&value, 1});
}

}  // namespace

Status do_cudnnGetVersion(Session& session, const EntryHeader& header, const cmd::cudnnGetVersion&,
                          Body, Body) {
  return version(session, header, "cudnnGetVersion", session.backend().cudnnGetVersion);
}

Status do_cudnnGetCudartVersion(Session& session, const EntryHeader& header,
                                const cmd::cudnnGetCudartVersion&, Body, Body) {
  return version(session, header, "cudnnGetCudartVersion", session.backend().cudnnGetCudartVersion);
}

}  // namespace pyft::server
