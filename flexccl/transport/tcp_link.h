// A link over a connected stream socket, after the set-up that transport/endpoint.h describes.
#ifndef FLEXCCL_TRANSPORT_TCP_LINK_H_
#define FLEXCCL_TRANSPORT_TCP_LINK_H_

#include <vector>

#include "transport/link.h"
#include "transport/memory.h"

namespace flexccl {

class TcpOutbound final : public Outbound {
 public:
  explicit TcpOutbound(Fd socket);
  std::size_t write(std::span<const iovec> parts) override;
  int fd() const override { return socket_.get(); }
  bool alive() override;

 private:
  Fd socket_;
};

class TcpInbound final : public Inbound {
 public:
  explicit TcpInbound(Fd socket);
  std::span<const std::byte> peek() override;
  void consume(std::size_t bytes) override;
  int fd() const override { return socket_.get(); }
  bool alive() override { return true; }  // peek() tells

 private:
  Fd socket_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_TCP_LINK_H_
