// A server that stands by: it has a context on the GPU it will probably get, the library of linear
// algebra ready there, and the modules of clients whose place it may take, before it knows which.
#ifndef PYFT_SERVER_STANDBY_H_
#define PYFT_SERVER_STANDBY_H_

#include <memory>
#include <string>

#include "backend/backend.h"
#include "server/digest/device_digests.h"
#include "server/standby_modules.h"

namespace pyft::server {

class Standby {
 public:
  Standby(const backend::Table& table, const backend::Extras& extras)
      : table_(table), extras_(extras), ready_modules_(table), modules_(ready_modules_) {}
  // Where PYFT_STANDBY names a GPU: gets everything ready there. What goes wrong is no error yet.
  void get_ready();
  // Keeps up with the modules of clients until the agent has something else to say.
  void wait(int agent);
  // What was made in the context that has been entered: modules, and what hashes memory, which was
  // loaded before them. nullptr if there is nothing.
  ReadyModules* modules() { return entered_ready_ ? &ready_modules_ : nullptr; }
  std::shared_ptr<DeviceDigests> digests() { return entered_ready_ ? digests_ : nullptr; }
  // Makes the context of a GPU current in this thread, a ready one if there is one. Empty, or the
  // call that fails.
  std::string enter(int ordinal, CUcontext* context);

 private:
  bool obey(int agent);

  const backend::Table& table_;
  const backend::Extras& extras_;
  std::shared_ptr<DeviceDigests> digests_;
  ReadyModules ready_modules_;
  StandbyModules modules_;
  bool entered_ready_ = false;
  int ready_ordinal_ = -1;
  CUcontext ready_ = nullptr;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_STANDBY_H_
