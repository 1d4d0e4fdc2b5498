// Second executions of work, to be compared with the first. As softgpu.h, no vendor's interface.
#ifndef SOFTGPU_SOFTGPU_AGAIN_H_
#define SOFTGPU_SOFTGPU_AGAIN_H_

#ifdef __cplusplus
extern "C" {
#endif

// What this thread puts on streams from now on executes something for the second time (again: 1),
// or not (0). To faults on request such work is none: it is not counted as launches, and only stuck
// bits hit it. Its blocks start `places` SMs further on than those of the first time.
void softgpu_execute_again(int again, unsigned places);

// What has become of a launch that was to be executed twice. All but the first two: it was executed
// once, as ever, and there is nothing to compare.
enum softgpu_twice_end {
  SOFTGPU_TWICE_DONE = 0,
  SOFTGPU_TWICE_SECOND_FAILED = 1,  // with an error that the first execution has not had
  SOFTGPU_TWICE_ORDER = 2,  // it does not promise the same bits: the order of blocks is drawn
  SOFTGPU_TWICE_HOST = 3,   // it uses memory of the host, of other devices, or of other processes
  SOFTGPU_TWICE_CALLS = 4,  // it prints, allocates or has assertions that fail
  SOFTGPU_TWICE_CLOCK = 5,  // it reads a clock, or on which SM it runs
  SOFTGPU_TWICE_WAITS = 6,  // cooperative, or it takes far longer: it may wait for others
  SOFTGPU_TWICE_ROOM = 7,   // it writes more than may be kept
  SOFTGPU_TWICE_FAILED = 8  // the first execution, as work fails: its stream goes no further
};

// A launch of a kernel that is executed twice on the same memory. Then memory has what the first
// execution has written: the second one leaves nothing. Functions are called by the thread that
// executes it, and must not use the device.
struct softgpu_twice {
  unsigned places;                // as above, of the second execution
  unsigned long long most_bytes;  // of memory that is kept for it
  void* context;                  // of the functions; lives until the work is done or dropped
  // What the first execution (again: 0) has written, by address, then the second one (1); all of
  // it, and nothing else. The memory has it during the call.
  void (*wrote)(void* context, int again, unsigned long long address, unsigned long long bytes);
  // The kernel's mangled name; what both executions took, 0 for one that has not been.
  void (*ended)(void* context, enum softgpu_twice_end end, const char* kernel,
                unsigned long long first_ns, unsigned long long second_ns);
};

// Launches of kernels that this thread puts on streams from now on are executed twice; null: once.
// Not those in graphs.
void softgpu_execute_twice(const struct softgpu_twice* twice);

#ifdef __cplusplus
}
#endif

#endif  // SOFTGPU_SOFTGPU_AGAIN_H_
