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

#ifdef __cplusplus
}
#endif

#endif  // SOFTGPU_SOFTGPU_AGAIN_H_
