// The node of the host's memory nearest to a GPU. A server's threads run on its processors, and
// pages lie where the thread runs that needs them first: those of snapshots, of the journal, of
// what is page-locked. From the other socket copies are slower, by the device as by threads.
#ifndef PYFT_SERVER_HOST_NODE_H_
#define PYFT_SERVER_HOST_NODE_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace pyft::server {

// What is asked of the kernel. Tests have hosts of their own.
class Processors {
 public:
  virtual ~Processors() = default;
  // Those on which this thread may run, in ascending order.
  virtual std::vector<int> allowed() = 0;
  // This thread, and all that it makes, run on no others. False: the kernel refuses.
  virtual bool run_on(const std::vector<int>& processors) = 0;
};

class KernelProcessors : public Processors {
 public:
  std::vector<int> allowed() override;
  bool run_on(const std::vector<int>& processors) override;
};

// `root` has sys. Nothing: neither the driver nor the kernel tells, or the host has one node only.
std::optional<int> node_of(const backend::Table& table, int ordinal,
                           const std::filesystem::path& root = "/");

// Of a node, as the kernel lists them: "0-3,8".
std::vector<int> processors_of(int node, const std::filesystem::path& root = "/");

// Before the server has other threads. Of processors that the user has chosen it takes no others:
// where none of these is on the node, or all are, nothing is changed. What was done, for the log.
std::string stay_near(const backend::Table& table, int ordinal, Processors& processors,
                      const std::filesystem::path& root = "/");

}  // namespace pyft::server

#endif  // PYFT_SERVER_HOST_NODE_H_
