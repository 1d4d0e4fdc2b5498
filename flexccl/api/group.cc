// Groups: what a thread calls between ncclGroupStart and ncclGroupEnd is collected here.
#include <algorithm>
#include <optional>
#include <thread>

#include "api/state.h"

namespace flexccl {
namespace {

struct Group {
  int depth = 0;
  ncclResult_t first_error = ncclSuccess;
  std::vector<Call> calls;
  std::vector<std::function<void()>> inits;
};

Group& group() {
  thread_local Group mine;
  return mine;
}

// Everything of one communicator becomes one task: collectives in order, then all transfers.
void launch(std::vector<Call> calls) {
  const auto communicator = calls.front().communicator;
  const cudaStream_t stream = calls.front().stream;
  for (const Call& call : calls)
    if (call.stream != stream)
      fail(ncclInvalidUsage, "flexccl: the calls of a group on one communicator use the streams [",
           static_cast<const void*>(stream), "] and [", static_cast<const void*>(call.stream), "]");
  // A task that owned its communicator could end it inside the communicator's own thread.
  for (Call& call : calls) call.communicator.reset();
  communicator->submit(stream, [calls = std::move(calls)](Communicator& self) {
    std::vector<PointToPoint> transfers;
    for (const Call& call : calls) {
      if (call.make)
        self.run(call.make);
      else
        transfers.push_back(call.transfer);
    }
    if (!transfers.empty()) self.run(transfers);
  });
}

void run_together(const std::vector<std::function<void()>>& inits) {
  std::vector<std::thread> threads;
  std::vector<std::optional<Error>> errors(inits.size());
  for (std::size_t i = 0; i < inits.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        inits[i]();
      } catch (const Error& error) {
        errors[i] = error;
      } catch (const std::exception& error) {
        errors[i] = Error(ncclSystemError, error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) throw *error;
}

void end_group() {
  Group ended = std::exchange(group(), {});
  // The call that failed returned its error already; nothing of the group runs.
  if (ended.first_error != ncclSuccess) throw Error(ended.first_error, last_sentence());
  run_together(ended.inits);
  while (!ended.calls.empty()) {
    const auto first = ended.calls.front().communicator;
    const auto others =
        std::stable_partition(ended.calls.begin(), ended.calls.end(),
                              [&](const Call& call) { return call.communicator == first; });
    std::vector<Call> same(std::move_iterator(ended.calls.begin()), std::move_iterator(others));
    ended.calls.erase(ended.calls.begin(), others);
    launch(std::move(same));
  }
}

}  // namespace

bool in_group() {
  return group().depth > 0;
}

ncclResult_t note_in_group(ncclResult_t code) {
  if (in_group() && group().first_error == ncclSuccess) group().first_error = code;
  return code;
}

void enqueue(Call call) {
  if (in_group()) {
    group().calls.push_back(std::move(call));
    return;
  }
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  launch(std::move(calls));
}

void initialise(std::function<void()> init) {
  if (in_group())
    group().inits.push_back(std::move(init));
  else
    init();
}

}  // namespace flexccl

ncclResult_t ncclGroupStart() {
  ++flexccl::group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return flexccl::guarded([] {
    auto& group = flexccl::group();
    if (group.depth == 0)
      flexccl::fail(ncclInvalidUsage, "flexccl: ncclGroupEnd without ncclGroupStart");
    if (group.depth > 1) {
      --group.depth;
      return;
    }
    flexccl::end_group();
  });
}
