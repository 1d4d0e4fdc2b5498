// What calls leave behind on the stack. Structs that a program passes to kernels by value lie where
// calls have lain before, and bytes that it never writes keep what was there: times, what a wait
// has seen. So equal calls of two lives of a process differ, unless that is cleared
// (docs/research/second-life.md).
#ifndef PYFT_CLIENT_PROCESS_DEAD_STACK_H_
#define PYFT_CLIENT_PROCESS_DEAD_STACK_H_

namespace pyft::client {

// Whether PYFT_CLEAR_STACK asks for it.
extern const bool clears_stack;

// Zeros what lies below the caller's frame, as deep as calls of this library go. Nothing on a stack
// that is not the thread's own, as coroutines have, or where there is no room.
void clear_dead_stack();

}  // namespace pyft::client

#endif  // PYFT_CLIENT_PROCESS_DEAD_STACK_H_
