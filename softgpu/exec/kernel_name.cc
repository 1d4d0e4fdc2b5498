#include "exec/kernel_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace softgpu::exec {
namespace {

constexpr size_t kLongest = 160;  // bytes; names of templates have thousands
constexpr char kAnonymous[] = "(anonymous namespace)";

// Where the parameters begin, which are outside of all angle brackets; the end if there are none.
size_t end_of_name(const std::string& text) {
  size_t depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '<') ++depth;
    if (text[at] == '>' && depth) --depth;
    if (text[at] != '(' || depth) continue;
    if (text.compare(at, sizeof kAnonymous - 1, kAnonymous)) return at;
    at += sizeof kAnonymous - 2;
  }
  return text.size();
}

}  // namespace

std::string readable_kernel_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 && text ? text.get() : symbol;
  if (status == 0) name.resize(end_of_name(name));
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);  // of a template the result comes first
  if (name.size() > kLongest) name.replace(kLongest - 3, std::string::npos, "...");
  return name;
}

}  // namespace softgpu::exec
