#include "server/recovery/peer_export.h"

#include <poll.h>
#include <pthread.h>

#include <memory>
#include <utility>

#include "pyft/fault.h"
#include "ring/wait.h"

namespace pyft::server {

namespace {

constexpr int kLookMs = 100;  // how often a thread looks whether it should end
constexpr uint64_t kIdleNs =
    60'000'000'000;  // a borrower that asks for nothing for so long is given up
constexpr int kNotSupported = CUDA_ERROR_NOT_SUPPORTED;

}  // namespace

bool PeerExport::lend(const AgentMessage& message) {
  if (!message.as<msg::Lend>()) return false;
  auto link = std::make_shared<UniqueFd>(message.fd);
  lenders_.remove_if([](const Lender& lender) { return lender.done.load(); });
  if (link->get() < 0 || lenders_.size() >= kMostBorrowers) return true;
  Lender& lender = lenders_.emplace_back();
  lender.thread = std::jthread([this, &lender, link](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "pyft-lends");
    threads_.enter();
    serve(stop, link->get());
    link->reset();
    lender.done = true;
  });
  return true;
}

void PeerExport::serve(const std::stop_token& stop, int link) const {
  for (uint64_t asked = ring::now_ns();
       !stop.stop_requested() && ring::now_ns() - asked < kIdleNs;) {
    pollfd poller{link, POLLIN | POLLRDHUP, 0};
    if (poll(&poller, 1, kLookMs) <= 0) continue;
    AgentMessage message{};
    if (!receive_message(link, &message)) return;
    const UniqueFd unwanted(message.fd);
    const auto wanted = message.as<msg::WantMemory>();
    if (!wanted) continue;
    asked = ring::now_ns();
    answer(link, wanted->offset);
  }
}

void PeerExport::answer(int link, uint64_t offset) const {
  checkpoint::MemoryRange mapping;
  UniqueFd memory;
  int code = CUDA_ERROR_INVALID_VALUE;
  if (offset < window_.bytes) code = find(window_.address + offset, &mapping, &memory);
  PYFT_FAULT("export.before_answer");
  send_message(link,
               msg::Memory{.begin = mapping.address - window_.address,
                           .size = mapping.bytes,
                           .result = static_cast<uint64_t>(code)},
               {}, code ? -1 : memory.get());
}

// The mapping may be gone, or another one, after each of these calls. Then the borrower gets other
// bytes, or memory of another size, which it notices.
int PeerExport::find(uint64_t address, checkpoint::MemoryRange* mapping, UniqueFd* memory) const {
  if (!table_.cuPointerGetAttribute || !table_.cuMemRetainAllocationHandle ||
      !table_.cuMemExportToShareableHandle || !table_.cuMemRelease)
    return kNotSupported;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  int code = table_.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address);
  if (!code)
    code = table_.cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address);
  if (code) return code;
  CUmemGenericAllocationHandle handle{};
  code = table_.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(base));
  if (code) return code;
  int fd = -1;
  code =
      table_.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  table_.cuMemRelease(handle);
  if (code) return code;
  memory->reset(fd);
  *mapping = {base, bytes};
  return 0;
}

}  // namespace pyft::server
