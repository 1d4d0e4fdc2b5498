#include "server/standby.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "server/device.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/device_memory.h"

namespace pyft::server {

void Standby::get_ready() {
  const char* const text = std::getenv("PYFT_STANDBY");
  if (!text || !*text) return;
  const int ordinal = std::atoi(text);
  if (!enter_context(table_, ordinal, &ready_).empty()) return;
  ready_ordinal_ = ordinal;
  cublasHandle_t blas = nullptr;  // loads the library's kernels
  if (table_.cublasCreate_v2 && table_.cublasCreate_v2(&blas) == CUBLAS_STATUS_SUCCESS)
    table_.cublasDestroy_v2(blas);
  std::string why;  // said by who makes it then
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
  if (message.kind == ring::MessageKind::kModules) {
    fd.valid() ? modules_.follow(message.a, std::move(fd)) : modules_.forget(message.a);
  } else if (message.kind == ring::MessageKind::kGiveUp) {
    modules_.give_up();
    send_message(agent, ring::MessageKind::kGivenUp);
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

std::string Standby::enter(int ordinal, CUcontext* context) {
  // A GPU that has failed since takes the contexts of all processes with it.
  constexpr int kNotReady = 600;
  const int state = ordinal == ready_ordinal_ ? table_.cuStreamQuery(nullptr) : -1;
  if (state == 0 || state == kNotReady) {
    *context = ready_;
    entered_ready_ = true;
    return {};
  }
  return enter_context(table_, ordinal, context);
}

}  // namespace pyft::server
