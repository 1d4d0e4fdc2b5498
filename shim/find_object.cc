// Where libgcc's unwinder, which is part of the preloaded libraries, finds the tables of a
// function.
//
// glibc has this function since 2.35. Defined here, and hidden, it lets these libraries be loaded
// by older ones as well.
#include <dlfcn.h>
#include <link.h>

#include <cstdint>

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* found;
};

// 1: the address is in this object.
int look(dl_phdr_info* object, std::size_t, void* data) {
  auto* const search = static_cast<Search*>(data);
  const ElfW(Phdr)* here = nullptr, *frames = nullptr;
  for (const ElfW(Phdr)* part = object->dlpi_phdr; part < object->dlpi_phdr + object->dlpi_phnum;
       ++part) {
    if (part->p_type == PT_LOAD &&
        search->address - object->dlpi_addr - part->p_vaddr < part->p_memsz)
      here = part;
    if (part->p_type == PT_GNU_EH_FRAME) frames = part;
  }
  if (!here) return 0;
  if (!frames) return -1;
  const auto at = [object](std::uintptr_t offset) {
    return reinterpret_cast<void*>(object->dlpi_addr + offset);
  };
  *search->found = {};
  search->found->dlfo_map_start = at(here->p_vaddr);
  search->found->dlfo_map_end = at(here->p_vaddr + here->p_memsz);
  search->found->dlfo_eh_frame = at(frames->p_vaddr);
  return 1;
}

}  // namespace

extern "C" [[gnu::visibility("hidden")]] int _dl_find_object(void* address,
                                                             dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
