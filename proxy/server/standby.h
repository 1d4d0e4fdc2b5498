// A server that stands by: it has a context on the GPU it will probably get, and the library of
// linear algebra ready there, before it knows its client.
#ifndef PYFT_SERVER_STANDBY_H_
#define PYFT_SERVER_STANDBY_H_

#include <string>

#include "backend/backend.h"

namespace pyft::server {

// The contexts of this process.
class Contexts {
 public:
  explicit Contexts(const backend::Table& table) : table_(table) {}
  // Where PYFT_STANDBY names a GPU: gets everything ready there. What goes wrong is no error yet.
  void stand_by();
  // Makes the context of a GPU current in this thread, a ready one if there is one. Empty, or the
  // call that fails.
  std::string enter(int ordinal, CUcontext* context);

 private:
  const backend::Table& table_;
  int ready_ordinal_ = -1;
  CUcontext ready_ = nullptr;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_STANDBY_H_
