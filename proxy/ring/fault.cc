#include "pyft/fault.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>

#include "pyft/settings.h"

namespace pyft::fault {

std::atomic<bool> armed{false};

namespace {

struct Spec {
  std::mutex mutex;
  std::string text, name;  // as it was written
  long left = 0, reached = 0;
};

Spec& spec() {
  static Spec the_spec;
  return the_spec;
}

// Points of a rank are named after it: `communicator.made.3`.
bool is_of_other(const std::string& name, uint32_t rank) {
  const std::string last = name.substr(name.rfind('.') + 1);
  return !last.empty() && std::ranges::all_of(last, [](char c) { return c >= '0' && c <= '9'; }) &&
         last != std::to_string(rank);
}

// 0: it is no number.
long count(std::string_view text) {
  long number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? number : 0;
}

std::string note_of(const std::string& text) {
  return "happened PYFT_FAULT=" + text;
}

// In any of the processes that share the file.
bool is_noted(const std::string& text) {
  std::ifstream file(settings::fault_notes());
  for (std::string line; std::getline(file, line);)
    if (line == note_of(text)) return true;
  return false;
}

// It outlives this process. One write, so that lines of several processes stay whole.
void note_down(const std::string& text) {
  const char* const path = settings::fault_notes();
  if (!*path) return;
  const std::string line = note_of(text) + "\n";
  const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, line.data(), line.size()) < 0) perror("pyft: PYFT_FAULT_NOTES");
  close(fd);
}

// Runs when the library is loaded, before any thread can reach a point.
const bool armed_from_environment = (arm(settings::fault()), true);

}  // namespace

void arm(const char* text) {
  std::lock_guard lock(spec().mutex);
  armed = false;
  if (!text || !*text) return;
  const std::string_view all = spec().text = text;
  const size_t colon = std::min(all.rfind(':'), all.size());
  spec().name = all.substr(0, colon);
  spec().left = colon < all.size() ? count(all.substr(colon + 1)) : 1;
  spec().reached = 0;
  armed = spec().left > 0;
  if (!armed) settings::detail::refuse("PYFT_FAULT", text, "a point, or POINT:N from 1");
}

void reached(const char* name) {
  std::lock_guard lock(spec().mutex);
  if (spec().name != name) return;
  ++spec().reached;
  if (--spec().left > 0) return;
  note_down(spec().text);
  std::raise(SIGKILL);
}

std::string missed(std::initializer_list<std::string_view> owned, uint32_t rank) {
  std::lock_guard lock(spec().mutex);
  const std::string& name = spec().name;
  const auto begins = [&](std::string_view with) { return name.starts_with(with); };
  if (!armed || std::none_of(owned.begin(), owned.end(), begins) || is_of_other(name, rank) ||
      is_noted(spec().text))
    return "";
  return "pyft: the fault [PYFT_FAULT=" + name + ":" +
         std::to_string(spec().left + spec().reached) + "] has not come to [pid " +
         std::to_string(getpid()) + "]: this point was reached [" + std::to_string(spec().reached) +
         "] times\n";
}

}  // namespace pyft::fault
