// Owners of a file descriptor and of mapped memory.
#ifndef FLEXCCL_TRANSPORT_MEMORY_H_
#define FLEXCCL_TRANSPORT_MEMORY_H_

#include <cstddef>
#include <memory>
#include <utility>

namespace flexccl {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Zeroed memory that another process can map through fd(); its size is sealed.
class Memory {
 public:
  static std::shared_ptr<Memory> create(std::size_t bytes);
  // Throws ncclRemoteError unless the descriptor has exactly `bytes` and cannot shrink: a later
  // truncation by the other side would end this process with SIGBUS.
  static std::shared_ptr<Memory> adopt(Fd fd, std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }
  int fd() const { return fd_.get(); }

 private:
  Memory(Fd fd, std::size_t bytes);
  Fd fd_;
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_MEMORY_H_
