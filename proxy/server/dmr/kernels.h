// Launches of kernels that are executed twice: the device does it at once, and says what both have
// written. Which ones, and what becomes of the others, says docs/concepts/second-executions.md.
#ifndef PYFT_SERVER_DMR_KERNELS_H_
#define PYFT_SERVER_DMR_KERNELS_H_

#include <memory>
#include <string>
#include <vector>

#include "backend/twice.h"
#include "checkpoint/digest/digest.h"
#include "ring/kernel_counters.h"
#include "server/dmr/second_executions.h"

namespace pyft::server::dmr {

// One launch, from when it is put on its stream until its stream has come there.
class Launch : public backend::TwiceHears {
 public:
  Launch(const EntryHeader& header, Body body, checkpoint::DigestKey key, uint64_t cut, bool voted);
  void wrote(bool again, uint64_t address, uint64_t bytes) override;
  void ended(backend::TwiceEnd end, const char* kernel, uint64_t first_ns,
             uint64_t second_ns) override;

  uint64_t seq() const { return seq_; }
  // All that the client has said of it.
  const Digest& arguments() const { return arguments_; }
  // Where the first or the second execution has written, and what: the order says nothing.
  Digest outputs(bool again) const;
  bool is_compared() const {
    return end_ == backend::TwiceEnd::kDone || end_ == backend::TwiceEnd::kSecondFailed;
  }

  const uint64_t cut;  // behind which it is
  const bool voted;    // there is an open vote about it

 private:
  friend class Kernels;
  const uint64_t seq_;
  const checkpoint::DigestKey key_;
  const Digest arguments_;
  checkpoint::Hasher first_, second_;
  backend::TwiceEnd end_ = backend::TwiceEnd::kFailed;
  std::string kernel_;
  uint64_t first_ns_ = 0, second_ns_ = 0;
};

class Kernels {
 public:
  using Mode = SecondExecutions::Mode;
  // Any thread.
  struct Hears {
    virtual ~Hears() = default;
    // In the stream, behind it. `kernel`: its mangled name.
    virtual void executed_twice(const Launch& launch, const std::string& kernel) = 0;
  };
  // `execute`: null, if the device cannot.
  Kernels(Session& session, backend::ExecuteTwice execute, const SecondExecutions::Options& options,
          Hears& hears);

  // Executes a launch of a kernel, behind that cut. `voted`: there must be a second execution. The
  // dispatch thread.
  Status perform(const EntryHeader& header, Body body, Body payload, uint64_t cut, bool voted);

 private:
  void follow(const Launch& launch);
  std::atomic<uint64_t>* counter_of(backend::TwiceEnd end);
  ring::ControlPage& counters() { return session_.channel().control(); }

  Session& session_;
  const backend::ExecuteTwice execute_;
  const SecondExecutions::Options options_;
  Hears& hears_;
  std::vector<std::shared_ptr<Launch>> dropped_;
};

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_KERNELS_H_
