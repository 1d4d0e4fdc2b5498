// measure NAME [ARGUMENT]: one measurement of what pyft needs of a driver (driver.h says how it
// answers). tools/gpu/check.sh builds and runs them.
#include <cstdio>
#include <cstring>

#include "driver.h"

namespace {

struct Entry {
  const char* name;
  void (*run)(const std::string& argument);
};

constexpr Entry kEntries[] = {
    {"window", measure::window},   {"mapping", measure::mapping},
    {"hold", measure::hold},       {"registered", measure::registered},
    {"words", measure::words},     {"modules", measure::modules},
    {"phases", measure::phases},   {"faults", measure::faults},
    {"capture", measure::capture}, {"digest", measure::digest},
};

}  // namespace

int main(int argc, char** argv) {
  for (const Entry& entry : kEntries) {
    if (argc < 2 || std::strcmp(entry.name, argv[1]) != 0) continue;
    entry.run(argc > 2 ? argv[2] : "");
    return 0;
  }
  std::fprintf(stderr, "usage: measure NAME [ARGUMENT]; NAME is one of");
  for (const Entry& entry : kEntries) std::fprintf(stderr, " %s", entry.name);
  std::fprintf(stderr, "\n");
  return 2;
}
