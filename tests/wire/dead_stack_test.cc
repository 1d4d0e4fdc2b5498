#include "client/process/dead_stack.h"

#include <pthread.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"

using pyft::client::clear_dead_stack;

constexpr size_t kDeep = 8 << 10, kAmple = 512 << 10, kSmall = 64 << 10;
constexpr std::byte kOld{0xab};

// As a call does that has much on the stack.
__attribute__((noinline)) static void leave_something() {
  std::byte local[kDeep];
  std::memset(local, static_cast<int>(kOld), sizeof local);
  asm volatile("" : : "r"(local) : "memory");
}

struct Run {
  explicit Run(size_t bytes) : stack(bytes) {}
  std::vector<std::byte> stack;
  long before = 0, after = 0;

  long old_bytes() const { return std::count(stack.begin(), stack.end(), kOld); }
};

static void* run(void* data) {
  auto* const here = static_cast<Run*>(data);
  leave_something();
  here->before = here->old_bytes();
  leave_something();  // what counts has left something itself
  clear_dead_stack();
  here->after = here->old_bytes();
  return nullptr;
}

static void run_in_thread(Run* here) {
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK_EQ(pthread_attr_init(&attributes), 0);
  CHECK_EQ(pthread_attr_setstack(&attributes, here->stack.data(), here->stack.size()), 0);
  CHECK_EQ(pthread_create(&thread, &attributes, run, here), 0);
  CHECK_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(what_calls_have_left_is_cleared) {
  Run here(kAmple);
  run_in_thread(&here);
  CHECK(here.before > static_cast<long>(kDeep / 2));
  CHECK(here.after < 64);  // what counts them may have the number in a word of its own
}

TEST(a_stack_without_room_is_left_alone) {
  Run here(kSmall);
  run_in_thread(&here);
  CHECK(here.before > static_cast<long>(kDeep / 2));
  CHECK(here.after > static_cast<long>(kDeep / 2));
}

static Run* of_coroutine;

TEST(a_stack_of_a_coroutine_is_left_alone) {
  Run here(kAmple);
  of_coroutine = &here;
  ucontext_t back, coroutine;
  CHECK_EQ(getcontext(&coroutine), 0);
  coroutine.uc_stack = {here.stack.data(), 0, here.stack.size()};
  coroutine.uc_link = &back;
  makecontext(&coroutine, [] { run(of_coroutine); }, 0);
  CHECK_EQ(swapcontext(&back, &coroutine), 0);
  CHECK(here.before > static_cast<long>(kDeep / 2));
  CHECK(here.after > static_cast<long>(kDeep / 2));
}

CHECK_MAIN
