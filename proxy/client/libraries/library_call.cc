#include "client/libraries/library_call.h"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "client/process/handles.h"

namespace pyft::client {
namespace {

constexpr int kCudnnDouble = 1;  // CUDNN_DATA_DOUBLE

// cuFFT's plans are small integers.
std::mutex plans_mutex;
std::deque<LibraryObject*> plans;

int add_plan(LibraryObject* object) {
  const std::lock_guard lock(plans_mutex);
  plans.push_back(object);
  return static_cast<int>(plans.size());
}

void remove_plan(const LibraryObject* object) {
  const std::lock_guard lock(plans_mutex);
  for (LibraryObject*& plan : plans)
    if (plan == object) plan = nullptr;
  while (!plans.empty() && !plans.back()) plans.pop_back();
}

}  // namespace

LibraryObject* library_object(const void* handle, ObjectType type) {
  auto* object = static_cast<LibraryObject*>(const_cast<void*>(handle));
  if (!object || object->magic != LibraryObject::kMagic) return nullptr;
  return object->type == type ? object : nullptr;
}

LibraryObject* library_object(int plan, ObjectType type) {
  const std::lock_guard lock(plans_mutex);
  const auto index = static_cast<size_t>(plan) - 1;
  return plan > 0 && index < plans.size() ? plans[index] : nullptr;
}

uint64_t mint_object(ObjectType type) {
  static std::atomic<uint64_t> last{0};
  return ObjectId::make(static_cast<uint8_t>(type), ++last).value;
}

void LibraryCall::fail(int code) {
  if (code_ == 0) code_ = code;
}

void LibraryCall::take(LibraryObject* object, uint64_t* field) {
  if (!object)
    return fail(first_ ? library_codes(library_).invalid : library_codes(library_).uninitialized);
  if (!first_) first_ = object;
  // Objects of two devices live in two servers.
  if (&object->device != &first_->device) {
    say(std::string("[") + api_name(api_) + "] is given objects of two devices");
    return fail(library_codes(library_).invalid);
  }
  // A call works in the stream of its handle, which need not be its first argument.
  if (object->stream) stream_value_ = object->stream;
  *field = object->id;
}

void LibraryCall::make(ObjectType type, void* out, uint64_t* field) {
  if (!out) return fail(library_codes(library_).invalid);
  made_type_ = type;
  made_ = out;
  *field = made_id_ = mint_object(type);
}

void LibraryCall::in(const void* array, int64_t bytes, uint32_t* field) {
  *field = kNoArray;
  if (!array) return;
  if (bytes < 0 || bytes >= kNoArray) return fail(library_codes(library_).invalid);
  *field = static_cast<uint32_t>(bytes);
  const auto* from = static_cast<const std::byte*>(array);
  tail_.insert(tail_.end(), from, from + bytes);
  tail_.resize((tail_.size() + 7) & ~size_t{7});
}

void LibraryCall::out(void* to, size_t bytes) {
  outs_[out_count_++] = {to, bytes};
}

void LibraryCall::out_array(void* to, int64_t bytes, uint32_t* field) {
  *field = kNoArray;
  if (!to) return;
  if (bytes < 0) return fail(library_codes(library_).invalid);
  if (bytes > ring::kReplyInlineBytes) {
    say(std::string("[") + api_name(api_) + "] is not supported for [" + std::to_string(bytes) +
        "] bytes of results");
    return fail(library_codes(library_).not_supported);
  }
  *field = static_cast<uint32_t>(bytes);
  arrays_.push_back({to, static_cast<size_t>(bytes)});
}

void LibraryCall::inout(void* value, uint64_t* field) {
  if (value) std::memcpy(field, value, sizeof *field);
  out(value, sizeof *field);
}

Scalar LibraryCall::scalar(const void* value, size_t bytes, uint32_t* device_scalars) {
  Scalar scalar;
  *device_scalars = first_ && first_->pointer_mode == 1;
  if (*device_scalars)
    scalar.low = reinterpret_cast<uint64_t>(value);
  else if (value)
    std::memcpy(&scalar, value, bytes < sizeof scalar ? bytes : sizeof scalar);
  return scalar;
}

uint64_t LibraryCall::result(void* to, size_t bytes, uint32_t* device_scalars) {
  *device_scalars = first_ && first_->pointer_mode == 1;
  out(*device_scalars ? nullptr : to, bytes);
  return reinterpret_cast<uint64_t>(to);
}

Scalar LibraryCall::host_scalar(const void* value, const void* descriptor) {
  Scalar scalar;
  const LibraryObject* of = library_object(descriptor, ObjectType::cudnn_tensor);
  if (value) std::memcpy(&scalar, value, of ? of->scalar_bytes : sizeof(float));
  return scalar;
}

void LibraryCall::must_be_null(const void* value) {
  if (!value) return;
  say(std::string("[") + api_name(api_) + "] is not supported with every argument given");
  fail(library_codes(library_).not_supported);
}

void LibraryCall::sets_stream(void* stream, uint64_t* field) {
  *field = reinterpret_cast<uint64_t>(stream);
  cudaError_t error;
  if (!stream_of(static_cast<cudaStream_t>(stream), &error)) fail(library_code(library_, error));
  // The server's thread has another one by this number.
  const Stream* own = *field == 2 && first_ ? default_stream(first_->device, 2, &error) : nullptr;
  if (own) *field = own->handle;
  new_stream_ = field;
}

void LibraryCall::sets_pointer_mode(int mode, int32_t* field) {
  *field = mode;
  new_pointer_mode_ = static_cast<uint32_t>(mode);
}

void LibraryCall::sets_element(int data_type, int32_t* field) {
  *field = data_type;
  new_scalar_bytes_ = data_type == kCudnnDouble ? 8 : 4;
}

Device* LibraryCall::device() {
  if (first_) return &first_->device;
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) fail(library_code(library_, error));
  return device;
}

// Work of the library runs in the stream of its handle: the next synchronisation needs a fence.
void LibraryCall::finish(Device& device) {
  if (new_stream_) first_->stream = *new_stream_;
  if (new_pointer_mode_ != kNoArray) first_->pointer_mode = new_pointer_mode_;
  if (new_scalar_bytes_) first_->scalar_bytes = new_scalar_bytes_;
  if (made_) {
    LibraryObject* const object =
        std::make_unique<LibraryObject>(device, made_type_, made_id_).release();
    if (made_type_ == ObjectType::cufft_plan) {
      const int plan = add_plan(object);
      std::memcpy(made_, &plan, sizeof plan);
    } else {
      std::memcpy(made_, &object, sizeof object);
    }
  }
  cudaError_t error;
  Stream* stream = stream_value_ ? stream_of(reinterpret_cast<cudaStream_t>(stream_value_), &error)
                                 : &device.null_stream();
  if (stream) device.touch(*stream);
  if (!ended_) return;
  if (ended_->type == ObjectType::cufft_plan) remove_plan(ended_);
  ended_->magic = 0;
  const std::unique_ptr<LibraryObject> gone(ended_);
}

void LibraryCall::store(const Reply& reply) {
  for (size_t i = 0; i < out_count_; ++i)
    if (outs_[i].to) std::memcpy(outs_[i].to, &reply.values[i], outs_[i].bytes);
  size_t at = 0;
  for (const Out& array : arrays_) {
    if (at + array.bytes > reply.data.size()) return;
    std::memcpy(array.to, reply.data.data() + at, array.bytes);
    at += (array.bytes + 7) & ~size_t{7};
  }
}

// No call tells how far a generator of cuRAND is. What it was given before a snapshot is not
// repeated.
void LibraryCall::announce_generator(Device& device, Call call) const {
  const bool generates = library_ == ObjectLibrary::curand &&
                         !(entry_flags(call) & (ring::kCreates | ring::kDestroys));
  if (generates && device.writer().unreplayable())
    say(std::string("[") + api_name(api_) +
        "] takes numbers from a generator: how far that is in its sequence is in no snapshot, so "
        "that from here on a replay may come to other values");
}

int LibraryCall::send(Call call, Bytes body) {
  Device* const device = code_ ? nullptr : this->device();
  if (!device) return code_;
  if (!library_present(*device, library_, api_)) return library_codes(library_).not_supported;
  announce_generator(*device, call);
  const cudaError_t error = device->send(static_cast<uint16_t>(call), body, tail_);
  if (error == cudaSuccess) finish(*device);
  return library_code(library_, error);
}

int LibraryCall::wait(Call call, Bytes body) {
  Device* const device = code_ ? nullptr : this->device();
  if (!device) return code_;
  if (!library_present(*device, library_, api_)) return library_codes(library_).not_supported;
  Reply reply;
  const cudaError_t error = device->call(static_cast<uint16_t>(call), body, &reply, tail_);
  if (error != cudaSuccess) return library_code(library_, error);
  if (reply.code == cudaErrorNotSupported) {  // no library has this code
    unsupported(api_, "the server's library lacks it");
    return library_codes(library_).not_supported;
  }
  if (reply.code) return reply.code;
  store(reply);
  finish(*device);
  return 0;
}

}  // namespace pyft::client
