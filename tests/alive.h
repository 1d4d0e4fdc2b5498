// The other side of a channel, which never ends.
#ifndef PYFT_TESTS_ALIVE_H_
#define PYFT_TESTS_ALIVE_H_

#include "ring/wait.h"

struct AlwaysAlive : pyft::ring::Liveness {
  pyft::ring::WaitStatus check() const override { return pyft::ring::WaitStatus::kOk; }
};

#endif  // PYFT_TESTS_ALIVE_H_
