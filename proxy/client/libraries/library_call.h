// Calls of cuDNN, cuFFT, cuRAND, cuSOLVER and cuSPARSE. What a program holds (handle, descriptor,
// plan, generator) is a LibraryObject of ours; the object itself lives in the server.
#ifndef PYFT_CLIENT_LIBRARIES_LIBRARY_CALL_H_
#define PYFT_CLIENT_LIBRARIES_LIBRARY_CALL_H_

#include <cstring>
#include <vector>

#include "api/commands.h"
#include "api/object_types.h"
#include "client/blas/blas.h"
#include "client/device/stream.h"

namespace pyft::client {

struct LibraryObject {
  static constexpr uint32_t kMagic = 0x4f544650;
  LibraryObject(Device& device, ObjectType type, uint64_t id)
      : device(device), type(type), id(id) {}
  uint32_t magic = kMagic;
  Device& device;
  ObjectType type;
  uint64_t id;
  uint64_t stream = 0;        // of a handle, plan or generator
  uint32_t pointer_mode = 0;  // of a handle: 1, scalars are device addresses
  uint32_t scalar_bytes = 4;  // of a tensor descriptor: alpha and beta are float or double
};

// nullptr: not a living object of ours of that type.
LibraryObject* library_object(const void* handle, ObjectType type);
LibraryObject* library_object(int plan, ObjectType type);
uint64_t mint_object(ObjectType type);

// What a library answers when it is not the one that answers.
struct LibraryCodes {
  int uninitialized, no_memory, invalid, not_supported, failed;
};
const LibraryCodes& library_codes(ObjectLibrary library);
int library_code(ObjectLibrary library, cudaError_t error);

// Asks the server, once per device, whether it has the library. Where it has not, the call says so
// by its own name and fails: nothing is sent that could not be carried out.
bool library_present(Device& device, ObjectLibrary library, Api api);

inline uint64_t float_bits(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Negative counts and null arrays (bytes unused) are told apart by the call.
inline int64_t array_bytes(int64_t count, int64_t element) {
  return count < 0 ? -1 : count * element;
}

// One call while its stub collects the arguments. The first mistake is kept and becomes the answer,
// so that the stubs need no branches.
class LibraryCall {
 public:
  LibraryCall(ObjectLibrary library, Api api) : library_(library), api_(api) {}
  LibraryCall(const LibraryCall&) = delete;

  template <class Handle>
  void use(Handle handle, ObjectType type, uint64_t* field) {
    take(library_object(handle, type), field);
  }
  template <class Handle>
  void use_or_null(Handle handle, ObjectType type, uint64_t* field) {
    if (handle) use(handle, type, field);
  }
  template <class Handle>
  void end(Handle handle, ObjectType type, uint64_t* field) {
    ended_ = library_object(handle, type);
    take(ended_, field);
  }
  // The new object goes to *out when the call succeeds.
  void make(ObjectType type, void* out, uint64_t* field);
  void in(const void* array, int64_t bytes, uint32_t* field);
  void out(void* to, size_t bytes);
  void out_array(void* to, int64_t bytes, uint32_t* field);
  void inout(void* value, uint64_t* field);
  // By the pointer mode of the handle.
  Scalar scalar(const void* value, size_t bytes, uint32_t* device_scalars);
  uint64_t result(void* to, size_t bytes, uint32_t* device_scalars);
  // As wide as the elements of a tensor need.
  Scalar host_scalar(const void* value, const void* descriptor);
  void must_be_null(const void* value);
  void sets_stream(void* stream, uint64_t* field);
  void sets_pointer_mode(int mode, int32_t* field);
  void sets_element(int data_type, int32_t* field);

  int send(Call call, Bytes body);
  int wait(Call call, Bytes body);

 private:
  struct Out {
    void* to;
    size_t bytes;
  };
  void take(LibraryObject* object, uint64_t* field);
  void fail(int code);
  Device* device();
  void announce_generator(Device& device, Call call) const;
  bool ready();
  void finish(Device& device);
  void store(const Reply& reply);

  ObjectLibrary library_;
  Api api_;
  int code_ = 0;
  LibraryObject* first_ = nullptr;  // whose stream the call works in
  LibraryObject* ended_ = nullptr;
  ObjectType made_type_{};
  void* made_ = nullptr;
  uint64_t made_id_ = 0;
  const uint64_t* new_stream_ = nullptr;
  uint32_t new_pointer_mode_ = kNoArray, new_scalar_bytes_ = 0;
  std::vector<std::byte> tail_;
  Out outs_[5] = {};
  size_t out_count_ = 0;
  std::vector<Out> arrays_;
  uint64_t stream_value_ = 0;
};

}  // namespace pyft::client

#endif  // PYFT_CLIENT_LIBRARIES_LIBRARY_CALL_H_
