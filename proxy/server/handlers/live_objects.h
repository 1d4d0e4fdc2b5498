// What the handlers know of the program's objects, for snapshots.
#ifndef PYFT_SERVER_HANDLERS_LIVE_OBJECTS_H_
#define PYFT_SERVER_HANDLERS_LIVE_OBJECTS_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/memory_range.h"
#include "checkpoint/resources/module_image.h"
#include "server/session/session.h"

namespace pyft::server {

// Both append.
void allocated_memory(Session& session, std::vector<checkpoint::MemoryRange>* ranges);
void accessible_mappings(Session& session, std::vector<checkpoint::MemoryRange>* ranges);
// Of the program's own memory what no address shows: a sentence, empty if there is none.
std::string unmapped_contents(Session& session);
// Memory that may only be read has got its contents: from now on it may only be read. 0, or a code.
int protect_mappings(Session& session);
struct LoadedModule {
  CUmodule module = nullptr;
  std::vector<checkpoint::MemoryRange> variables;  // if they are to be known; in the image's order
  bool escaped = false;                            // the program knows where one of them lies
  checkpoint::KernelParameters parameters = {};    // if the driver does not tell them
};
// Where a module's variables lie, neighbours made one, in the order of the image, which is the same
// in every server. `why`: why they are not known; empty if they are.
std::vector<checkpoint::MemoryRange> find_variables(const backend::Table& api, CUmodule module,
                                                    std::span<const std::byte> image,
                                                    std::string* why);
// By handle.
const std::map<uint64_t, LoadedModule>& loaded_modules(Session& session);
// Modules loaded from now on have their variables looked up by name, for a backend that does not
// tell where they lie.
void look_up_variables(Session& session);
// Streams that capture a graph now.
uint64_t open_captures(Session& session);

}  // namespace pyft::server

#endif  // PYFT_SERVER_HANDLERS_LIVE_OBJECTS_H_
