// A launch that is executed twice on the same memory, so that both can be compared.
//
// The first execution is the program's, as ever, and what it writes over is kept. Then memory is as
// before, the second one runs, and memory is what the first one has left. All of it is one work of
// the stream: what follows in it sees the first execution only.
#ifndef SOFTGPU_WORK_TWICE_H_
#define SOFTGPU_WORK_TWICE_H_

#include <functional>

#include "core/journal.h"
#include "core/kernel.h"
#include "device/fault_injection.h"
#include "softgpu_again.h"

namespace softgpu {

// What the calling thread asks for from now on; null: nothing.
void ask_twice(const softgpu_twice* twice);
const softgpu_twice* asked_twice();

using Execute = std::function<Fault(LaunchTicket* ticket, Journal* journal)>;
// The outcome of the first execution, for which the ticket is.
Fault execute_twice(const softgpu_twice& twice, const Launch& launch, LaunchTicket* ticket,
                    const Execute& execute);

}  // namespace softgpu

#endif  // SOFTGPU_WORK_TWICE_H_
