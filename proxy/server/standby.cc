#include "server/standby.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <cerrno>
#include <utility>

#include "checkpoint/device.h"
#include "pyft/settings.h"
#include "ring/layout.h"
#include "ring/wait.h"
#include "server/device.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/session_device.h"

namespace pyft::server {

namespace {

std::string failed(const char* call, int code) {
  return std::string("[") + call + "] of the backend fails with code [" + std::to_string(code) +
         "]";
}

// The server before this one may have died so recently that the GPU is not free again.
CUresult retain(const backend::Table& table, CUdevice device, CUcontext* context) {
  constexpr uint64_t kMostNs = 10'000'000'000;
  const bool replaces = settings::self_test();
  const uint64_t until = ring::now_ns() + (replaces ? kMostNs : 0);
  for (;;) {
    const CUresult code = table.cuDevicePrimaryCtxRetain(context, device);
    const bool may_pass = code == CUDA_ERROR_OUT_OF_MEMORY || code == CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (!may_pass || ring::now_ns() >= until) return code;
    const timespec moment{0, 10'000'000};
    nanosleep(&moment, nullptr);
  }
}

}  // namespace

std::string enter_context(const backend::Table& table, int ordinal, CUcontext* context) {
  if (!table.cuInit || !table.cuDeviceGet || !table.cuDevicePrimaryCtxRetain ||
      !table.cuCtxSetCurrent || !table.cuMemAddressReserve || !table.cuLaunchHostFunc)
    return "the backend lacks a driver function that the server itself needs";
  CUdevice device = 0;
  if (const CUresult code = table.cuInit(0)) return failed("cuInit", code);
  if (const CUresult code = table.cuDeviceGet(&device, ordinal)) return failed("cuDeviceGet", code);
  if (const CUresult code = retain(table, device, context))
    return failed("cuDevicePrimaryCtxRetain", code);
  if (const CUresult code = table.cuCtxSetCurrent(*context)) return failed("cuCtxSetCurrent", code);
  return {};
}

std::string reserve_window(const backend::Table& table, uint32_t device) {
  const uint64_t wanted = ring::kDeviceWindowBase + device * ring::kDeviceWindowBytes;
  CUdeviceptr got = 0;
  const CUresult code = table.cuMemAddressReserve(&got, ring::kDeviceWindowBytes, 0, wanted, 0);
  if (code) return failed("cuMemAddressReserve", code);
  if (got == wanted) return {};
  return "the address window of device [" + std::to_string(device) + "] is at [" +
         std::to_string(got) + "] instead of [" + std::to_string(wanted) + "]";
}

void Standby::get_ready() {
  const auto wanted = settings::standby();
  if (!wanted) return;
  const int ordinal = static_cast<int>(*wanted);
  if (!enter_context(table_, ordinal, &ready_).empty()) return;
  ready_ordinal_ = ordinal;
  cublasHandle_t blas = nullptr;  // loads the library's kernels
  if (table_.cublasCreate_v2 && table_.cublasCreate_v2(&blas) == CUBLAS_STATUS_SUCCESS)
    table_.cublasDestroy_v2(blas);
  std::string why;  // said by the part that makes it then
  if (digest_kind(extras_) == ring::DigestKind::kNh)
    digests_ = DeviceDigests::make(table_, ordinal, 0, digest_images(), &why);
}

// False: the next message is not for one that stands by, or the connection has ended.
bool Standby::obey(int agent) {
  uint32_t magic = 0;
  if (recv(agent, &magic, sizeof magic, MSG_PEEK | MSG_DONTWAIT) != sizeof magic ||
      magic != ring::kMessageMagic)
    return false;
  AgentMessage message{};
  if (!receive_message(agent, &message)) return false;
  UniqueFd fd(message.fd);
  if (const auto modules = message.as<msg::Modules>()) {
    fd.valid() ? modules_.follow(modules->member, std::move(fd)) : modules_.forget(modules->member);
  } else if (message.as<msg::GiveUp>()) {
    modules_.give_up();
    if (digests_) digests_->drop_stagings();
    send_message(agent, msg::GivenUp{});
  }
  return true;
}

void Standby::wait(int agent) {
  if (ready_ordinal_ < 0) return;
  for (bool waits = true; waits;) {
    pollfd poller{agent, POLLIN, 0};
    const int came = poll(&poller, 1, modules_.turn());
    waits = came < 0 ? errno == EINTR : came == 0 || obey(agent);
  }
  modules_.end();
}

std::string Standby::enter(uint32_t device, CUcontext* context) {
  const int ordinal = ordinal_of(device);
  if (is_sound(ordinal)) {
    *context = ready_;
    entered_ready_ = true;
  } else if (std::string problem = enter_context(table_, ordinal, context); !problem.empty()) {
    return problem;
  }
  return reserve_window(table_, device);
}

// A GPU that has failed since takes the contexts of all processes with it.
bool Standby::is_sound(int ordinal) const {
  const int state = ordinal == ready_ordinal_ ? table_.cuStreamQuery(nullptr) : -1;
  return state == 0 || state == checkpoint::kNotReady;
}

}  // namespace pyft::server
