#include "exec/system_call.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "exec/access.h"
#include "exec/heap.h"

namespace softgpu::exec {

static uint32_t argument(const Inst* in, Warp* w, int lane, int k) {
  return dest(w, in->imm)[k].lane[lane];
}

static uint64_t argument_pair(const Inst* in, Warp* w, int lane, int k) {
  return argument(in, w, lane, k) | uint64_t{argument(in, w, lane, k + 1)} << 32;
}

// Generic memory of one lane, byte by byte: strings and argument blocks have no alignment.
static bool read_bytes(const Inst* in, Warp* w, int lane, uint64_t address, void* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const Place place = locate(in, w, Space::kGeneric, lane, address + i, 1);
    if (!place.p) return false;
    static_cast<uint8_t*>(to)[i] = *place.p;
  }
  return true;
}

static bool read_string(const Inst* in, Warp* w, int lane, uint64_t address, std::string* out) {
  for (char c; out->size() < 65536; out->push_back(c)) {
    if (!read_bytes(in, w, lane, address + out->size(), &c, 1)) return false;
    if (!c) return true;
  }
  return true;
}

// One conversion specification, without the '%' and the length modifiers of the device's types.
struct Conversion {
  std::string flags;
  bool is_long = false;
  char type = 0;
};

static Conversion parse_conversion(const std::string& format, size_t* at) {
  Conversion c;
  while (*at < format.size()) {
    const char ch = format[(*at)++];
    if (std::strchr("-+ #0123456789.*", ch)) {
      c.flags += ch;
    } else if (ch == 'l' || ch == 'z' || ch == 'j' || ch == 't') {
      c.is_long = true;
    } else if (ch != 'h') {
      c.type = ch;
      break;
    }
  }
  return c;
}

template <class T>
static std::string print_one(const std::string& spec, T value) {
  constexpr int kMost = 1 << 20;  // bytes: a width is the kernel's
  const int length = std::snprintf(nullptr, 0, spec.c_str(), value);
  std::string text(static_cast<size_t>(std::clamp(length, 0, kMost)), '\0');
  std::snprintf(text.data(), text.size() + 1, spec.c_str(), value);
  return text;
}

namespace {

// The argument block: each value at its natural alignment, floats promoted to double.
class Arguments {
 public:
  Arguments(const Inst* in, Warp* w, int lane, uint64_t block)
      : in_(in), w_(w), lane_(lane), next_(block) {}
  template <class T>
  bool take(T* value) {
    next_ = (next_ + sizeof(T) - 1) & ~(sizeof(T) - 1);
    const uint64_t at = next_;
    next_ += sizeof(T);
    return read_bytes(in_, w_, lane_, at, value, sizeof(T));
  }

 private:
  const Inst* in_;
  Warp* w_;
  int lane_;
  uint64_t next_;
};

}  // namespace

// Replaces each '*' by its argument.
static bool resolve_stars(Arguments* arguments, Conversion* c) {
  for (size_t star; (star = c->flags.find('*')) != std::string::npos;) {
    int32_t value = 0;
    if (!arguments->take(&value)) return false;
    c->flags.replace(star, 1, std::to_string(value));
  }
  return true;
}

static bool print_conversion(const Inst* in, Warp* w, int lane, Conversion c, Arguments* arguments,
                             std::string* out) {
  if (!resolve_stars(arguments, &c)) return false;
  const std::string spec = "%" + c.flags;
  if (std::strchr("fFeEgGaA", c.type)) {
    double value = 0;
    if (!arguments->take(&value)) return false;
    *out += print_one(spec + c.type, value);
  } else if (c.type == 's') {
    uint64_t address = 0;
    std::string text;
    if (!arguments->take(&address) || !read_string(in, w, lane, address, &text)) return false;
    *out += print_one(spec + 's', text.c_str());
  } else if (c.type == 'p' || c.is_long) {
    unsigned long long value = 0;
    if (!arguments->take(&value)) return false;
    *out += c.type == 'p' ? print_one("0x" + spec + "llx", value)
                          : print_one(spec + "ll" + c.type, value);
  } else {
    int32_t value = 0;
    if (!arguments->take(&value)) return false;
    *out += print_one(spec + c.type, value);
  }
  return true;
}

static bool call_vprintf(const Inst* in, Warp* w, int lane) {
  std::string format, out;
  if (!read_string(in, w, lane, argument_pair(in, w, lane, 0), &format)) return false;
  Arguments arguments(in, w, lane, argument_pair(in, w, lane, 2));
  int32_t count = 0;
  for (size_t at = 0; at < format.size();) {
    const char ch = format[at++];
    if (ch != '%') {
      out += ch;
      continue;
    }
    const Conversion c = parse_conversion(format, &at);
    if (c.type == '%' || !std::strchr("diouxXcsfFeEgGaAp", c.type) || !c.type) {
      out += '%';
      continue;
    }
    if (!print_conversion(in, w, lane, c, &arguments, &out)) return false;
    ++count;
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
  dest(w, in->imm)->lane[lane] = static_cast<uint32_t>(count);
  return true;
}

static bool call_assertfail(const Inst* in, Warp* w, int lane) {
  std::string message, file, function;
  if (!read_string(in, w, lane, argument_pair(in, w, lane, 0), &message) ||
      !read_string(in, w, lane, argument_pair(in, w, lane, 2), &file) ||
      !read_string(in, w, lane, argument_pair(in, w, lane, 6), &function)) {
    return false;
  }
  fault(in, w, FaultKind::kAssert, lane,
        "assertion [" + message + "] failed at [" + file + ":" +
            std::to_string(argument(in, w, lane, 4)) + "] in [" + function + "]");
  return false;
}

static DeviceHeap heap_of(const Warp* w) {
  const Launch& launch = *w->block->state->launch;
  return launch.heap ? launch.heap(launch.device) : DeviceHeap{};
}

static bool call_malloc(const Inst* in, Warp* w, int lane) {
  const uint64_t address = heap_allocate(heap_of(w), argument_pair(in, w, lane, 0));
  Row* result = dest(w, in->imm);
  result[0].lane[lane] = static_cast<uint32_t>(address);
  result[1].lane[lane] = static_cast<uint32_t>(address >> 32);
  return true;
}

static bool call_free(const Inst* in, Warp* w, int lane) {
  const uint64_t address = argument_pair(in, w, lane, 0);
  if (!address || heap_free(heap_of(w), address)) return true;
  char text[80];
  std::snprintf(text, sizeof text, "free of address [0x%llx], which malloc has not given",
                static_cast<unsigned long long>(address));
  fault(in, w, FaultKind::kIllegalAddress, lane, text);
  return false;
}

bool system_call(const Inst* in, Warp* w, int lane, uint64_t address) {
  if (!may(w, Unlike::kCalls)) {  // prints and failures have their order
    conflict(w);
    return false;
  }
  if (address == kSyscallVprintf) return call_vprintf(in, w, lane);
  if (address == kSyscallAssertfail) return call_assertfail(in, w, lane);
  if (address == kSyscallMalloc) return call_malloc(in, w, lane);
  if (address == kSyscallFree) return call_free(in, w, lane);
  fault(in, w, FaultKind::kIllegalInstruction, lane,
        "call of an unknown function at [" + std::to_string(address) + "]");
  return false;
}

}  // namespace softgpu::exec
