// What the libraries beside CUDA say and answer without a server: codes and their names.
#include <atomic>
#include <iterator>
#include <string>

#include "client/libraries/library_call.h"
#include "pyft/settings.h"

namespace pyft::client {
namespace {

constexpr LibraryCodes kCodes[] = {
    {1001, 4003, 2000, 3000, 5000},  // cudnn
    {1, 2, 4, 16, 6},                // cufft
    {101, 102, 103, 204, 201},       // curand: 204 is CURAND_STATUS_ARCH_MISMATCH
    {1, 2, 3, 9, 6},                 // cusolver
    {1, 2, 3, 10, 6},                // cusparse
};
static_assert(std::size(kCodes) == static_cast<size_t>(ObjectLibrary::kCount));

enum Presence : uint8_t { kUnknown, kThere, kAbsent };
std::atomic<uint8_t> presence[kMaxDevices][static_cast<size_t>(ObjectLibrary::kCount)];

}  // namespace

const LibraryCodes& library_codes(ObjectLibrary library) {
  return kCodes[static_cast<size_t>(library)];
}

int library_code(ObjectLibrary library, cudaError_t error) {
  const LibraryCodes& codes = library_codes(library);
  switch (error) {
    case cudaSuccess:
      return 0;
    case cudaErrorMemoryAllocation:
      return codes.no_memory;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
      return codes.invalid;
    case cudaErrorNotSupported:
      return codes.not_supported;
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
      return codes.uninitialized;
    default:
      return codes.failed;
  }
}

bool library_present(Device& device, ObjectLibrary library, Api api) {
  auto& known = presence[device.ordinal()][static_cast<size_t>(library)];
  if (known.load(std::memory_order_acquire) == kThere) return true;
  Reply reply;
  const cmd::pyftOpenLibrary body{ObjectId::make(0, static_cast<uint64_t>(library)).value};
  const cudaError_t error =
      device.call(static_cast<uint16_t>(Call::pyftOpenLibrary), bytes_of(body), &reply);
  if (error != cudaSuccess) return true;  // the call itself will say what is wrong
  known.store(reply.code == 0 ? kThere : kAbsent, std::memory_order_release);
  if (reply.code == 0) return true;
  unsupported(api, {reinterpret_cast<const char*>(reply.data.data()), reply.data.size()});
  return false;
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

// A version is asked for before anything else, also in programs that fork later: only a real GPU is
// worth attaching to for it.
size_t cudnn_version(Api api, Call call) {
  const Entered entered(api);
  const char* gpus = settings::gpus();
  if (!*gpus || std::strncmp(gpus, "soft", 4) == 0) return 0;
  cudaError_t error;
  Device* device = attached(&error);
  if (!device || !library_present(*device, ObjectLibrary::cudnn, api)) return 0;
  Reply reply;
  const cmd::cudnnGetVersion body{};
  error = device->call(static_cast<uint16_t>(call), bytes_of(body), &reply);
  return error == cudaSuccess && reply.code == 0 ? reply.values[0] : 0;
}

}  // namespace

PYFT_API size_t cudnnGetVersion() {
  return cudnn_version(Api::cudnnGetVersion, Call::cudnnGetVersion);
}

PYFT_API size_t cudnnGetCudartVersion() {
  return cudnn_version(Api::cudnnGetCudartVersion, Call::cudnnGetCudartVersion);
}

PYFT_API const char* cudnnGetErrorString(int status) {
  const Entered entered(Api::cudnnGetErrorString);
  switch (status / 1000) {
    case 0:
      return "CUDNN_STATUS_SUCCESS";
    case 1:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
      return "CUDNN_STATUS_BAD_PARAM";
    case 3:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

PYFT_API void cudnnGetLastErrorString(char* message, size_t max_size) {
  const Entered entered(Api::cudnnGetLastErrorString);
  if (message && max_size) *message = 0;
}

PYFT_API int cudnnGetStream(void* handle, void** streamId) {
  const Entered entered(Api::cudnnGetStream);
  const LibraryObject* object = library_object(handle, ObjectType::cudnn);
  if (!object || !streamId) return library_codes(ObjectLibrary::cudnn).invalid;
  *streamId = reinterpret_cast<void*>(object->stream);
  return 0;
}

PYFT_API const char* cusparseGetErrorString(int status) {
  const Entered entered(Api::cusparseGetErrorString);
  static const char* const names[] = {
      "success",          "resource not initialized", "resource allocation failed",
      "invalid value",    "architecture mismatch",    "mapping error",
      "execution failed", "internal error",           "matrix type not supported",
      "zero pivot",       "operation not supported",  "insufficient resources"};
  const auto index = static_cast<size_t>(status);
  return index < std::size(names) ? names[index] : "unknown error";
}
