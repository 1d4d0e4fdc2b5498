// Executes products for the second time that are in no pair: at once, or when the program waits.
// docs/concepts/second-executions.md says which, and what becomes of the others.
//
// The dispatch thread.
#ifndef PYFT_SERVER_DMR_SECOND_EXECUTIONS_H_
#define PYFT_SERVER_DMR_SECOND_EXECUTIONS_H_

#include <deque>
#include <unordered_map>

#include "ring/layout.h"
#include "server/dmr/execution.h"

namespace pyft::server::dmr {

using View = const void* (*)(unsigned long long address, unsigned long long bytes);
using ExecuteAgain = void (*)(int again, unsigned places);

class SecondExecutions {
 public:
  enum class Mode { kNone, kIdle, kFull };
  struct Options {
    Mode mode = Mode::kNone;
    double share = 0;               // of the time
    uint64_t memory = 0;            // bytes
    unsigned places = 0;            // SMs by which blocks are shifted
    checkpoint::DigestKey key = 0;  // of all digests
  };
  // Any thread.
  struct Hears {
    virtual ~Hears() = default;
    virtual void executed_again(const Execution& execution, const Digest& outputs) = 0;
  };
  SecondExecutions(Session& session, View view, ExecuteAgain again, const Options& options,
                   Hears& hears);

  Rotation& rotation() { return rotation_; }
  // Before an execution is put on its stream. `voted`: there must be a second one.
  void plan(const std::shared_ptr<Execution>& execution, Body body, bool voted);
  // In its stream, before it. Any thread.
  void before(const Execution& execution);
  // When it has been put on the stream.
  void follow(const std::shared_ptr<Execution>& execution, CUstream stream);
  // The program waits, or the device does: until an entry comes.
  void window();
  void end_window();
  // All that was put off is done before the cut, or will not be.
  void at_cut();

 private:
  Second::When when(const Execution& execution, bool voted);
  bool place(Execution* execution);
  bool put_on(const std::shared_ptr<Execution>& execution, CUstream stream, bool in_window);
  void compare(Execution* execution, uint64_t begun_ns, bool in_window);
  void run(const std::shared_ptr<Execution>& execution);
  bool take_copies(const std::shared_ptr<Execution>& execution);
  std::shared_ptr<Execution> next();
  bool may_use_windows();
  bool has_entries();
  ring::ControlPage& counters() { return session_.channel().control(); }
  template <class Done>
  bool work_until(Done done);

  Session& session_;
  const View view_;
  const ExecuteAgain execute_again_;
  const Options options_;
  Hears& hears_;
  Rotation rotation_;
  Again again_;
  std::shared_ptr<ShadowMemory> memory_;
  // By stream: second executions at once follow each other there.
  std::unordered_map<uint64_t, std::shared_ptr<const ShadowMemory::Piece>> of_stream_;
  std::deque<std::shared_ptr<Execution>> queue_;
  CUstream stream_ = nullptr;  // of windows
  bool closed_ = false;        // the stream of windows does not move
  uint64_t window_ns_ = 0;
};

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_SECOND_EXECUTIONS_H_
