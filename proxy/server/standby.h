// How a server comes to its device, before the first command: the context and the address window.
//
// A server that stands by has a context on the GPU it will probably get, the library of linear
// algebra ready there, and the modules of clients whose place it may take, before it knows which.
#ifndef PYFT_SERVER_STANDBY_H_
#define PYFT_SERVER_STANDBY_H_

#include <memory>
#include <string>

#include "backend/backend.h"
#include "server/digest/device_digests.h"
#include "server/standby_modules.h"

namespace pyft::server {

// Creates the primary context of a device and makes it current in this thread. Empty string, or a
// sentence that names the call and its code.
std::string enter_context(const backend::Table& table, int ordinal, CUcontext* context);
// Reserves the window of the program's device at its fixed address (the address that comes back is
// compared: the driver takes it as a hint). As above.
std::string reserve_window(const backend::Table& table, uint32_t device);

class Standby {
 public:
  // The backend must outlive this.
  explicit Standby(const backend::Backend& backend)
      : table_(backend.table),
        extras_(backend.extras),
        ready_modules_(backend.table),
        modules_(ready_modules_) {}
  // Where PYFT_STANDBY names a GPU: gets everything ready there. What goes wrong is no error yet.
  void get_ready();
  // Keeps up with the modules of clients until the agent has something else to say.
  void wait(int agent);
  // What was made in the context that has been entered: modules, and what hashes memory, which was
  // loaded before them. nullptr if there is nothing.
  ReadyModules* modules() { return entered_ready_ ? &ready_modules_ : nullptr; }
  std::shared_ptr<DeviceDigests> digests() { return entered_ready_ ? digests_ : nullptr; }
  // Makes a context on the GPU of the program's device current in this thread, a ready one if there
  // is one, and reserves the device's window. Empty, or the call that fails.
  std::string enter(uint32_t device, CUcontext* context);

 private:
  bool obey(int agent);
  bool is_sound(int ordinal) const;

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
