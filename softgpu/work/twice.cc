#include "work/twice.h"

#include <optional>

#include "stream/stream.h"

namespace softgpu {
namespace {

thread_local std::optional<softgpu_twice> asked_here;

// Of one thread: their pages serve one launch after the other.
struct Journals {
  Journal first, second;
};

// How much longer the second execution may take than the first, and in any case.
constexpr uint64_t kLonger = 4, kShort = 1'000'000;

softgpu_twice_end end_of(Unlike unlike) {
  switch (unlike) {
    case Unlike::kNone:
      return SOFTGPU_TWICE_DONE;
    case Unlike::kOrder:
      return SOFTGPU_TWICE_ORDER;
    case Unlike::kHost:
      return SOFTGPU_TWICE_HOST;
    case Unlike::kCalls:
      return SOFTGPU_TWICE_CALLS;
    case Unlike::kClock:
      return SOFTGPU_TWICE_CLOCK;
    case Unlike::kWaits:
      return SOFTGPU_TWICE_WAITS;
    case Unlike::kRoom:
      return SOFTGPU_TWICE_ROOM;
  }
  return SOFTGPU_TWICE_FAILED;
}

void tell(const softgpu_twice& twice, int again, const Journal& journal) {
  journal.each_piece(
      [&](uint64_t address, uint64_t bytes) { twice.wrote(twice.context, again, address, bytes); });
}

// On what was there before the first execution. Memory is as it was in the end.
softgpu_twice_end execute_second(const softgpu_twice& twice, const Launch& launch,
                                 Journals* journals, const Execute& execute) {
  Journal &first = journals->first, &second = journals->second;
  LaunchTicket ticket;
  ticket.placement = {true, twice.places};
  second.begin({launch.device, twice.most_bytes, kLonger * first.instructions + kShort, true});
  first.swap();
  const Fault fault = execute(&ticket, &second);
  const Unlike unlike = second.unlike();
  if (!fault && unlike == Unlike::kNone) tell(twice, 1, second);
  second.swap();
  first.swap();
  return fault ? SOFTGPU_TWICE_SECOND_FAILED : end_of(unlike);
}

}  // namespace

void ask_twice(const softgpu_twice* twice) {
  asked_here.reset();
  if (twice) asked_here = *twice;
}

const softgpu_twice* asked_twice() {
  return asked_here ? &*asked_here : nullptr;
}

Fault execute_twice(const softgpu_twice& twice, const Launch& launch, LaunchTicket* ticket,
                    const Execute& execute) {
  thread_local Journals journals;
  const auto end = [&](softgpu_twice_end how, uint64_t first_ns, uint64_t second_ns) {
    twice.ended(twice.context, how, launch.kernel->name.c_str(), first_ns, second_ns);
  };
  Journal& first = journals.first;
  first.begin({launch.device, twice.most_bytes, 0, false});
  const uint64_t begin = host_time_ns();
  Fault fault = execute(ticket, launch.cooperative ? nullptr : &first);
  if (fault.until) return fault;  // nothing has run yet
  const uint64_t middle = host_time_ns();
  softgpu_twice_end how = launch.cooperative ? SOFTGPU_TWICE_WAITS : end_of(first.unlike());
  if (fault) how = SOFTGPU_TWICE_FAILED;
  if (how != SOFTGPU_TWICE_DONE) {
    end(how, middle - begin, 0);
    return fault;
  }
  tell(twice, 0, first);
  how = execute_second(twice, launch, &journals, execute);
  end(how, middle - begin, host_time_ns() - middle);
  return fault;
}

}  // namespace softgpu
