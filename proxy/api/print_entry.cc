#include <cinttypes>
#include <cstdio>
#include <iterator>

#include "api/call_ids.h"
#include "api/object_types.h"
#include "api/printer.h"
#include "pyft/handle.h"

namespace pyft {
namespace {

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

template <class Body>
bool read_mark(std::span<const std::byte> body, Body* out) {
  if (body.size() < sizeof *out) return false;
  std::memcpy(out, body.data(), sizeof *out);
  return true;
}

std::string print_mark(ring::Mark mark, std::span<const std::byte> body) {
  Printer out({}, false);
  switch (mark) {
    case ring::Mark::kPad:
      return "pad()";
    case ring::Mark::kAlloc:
    case ring::Mark::kFree: {
      ring::AllocMark m{};
      if (!read_mark(body, &m)) break;
      out.device_ptr("address", m.address);
      out.u64("bytes", m.requested_bytes);
      return (mark == ring::Mark::kAlloc ? "ALLOC(" : "FREE(") + out.text() + ")";
    }
    case ring::Mark::kObserved: {
      ring::ObservedMark m{};
      if (!read_mark(body, &m)) break;
      out.u32("word", m.word);
      out.u32("kind", m.kind);
      out.u64("value", m.value);
      return "OBSERVED(" + out.text() + ")";
    }
    case ring::Mark::kGate:
      return "GATE()";
    case ring::Mark::kCut:
      return "CUT()";
    case ring::Mark::kFence: {
      ring::FenceMark m{};
      if (!read_mark(body, &m)) break;
      out.stream("stream", m.stream);
      out.u32("word", m.word);
      out.u64("value", m.value);
      return "FENCE(" + out.text() + ")";
    }
    case ring::Mark::kGoodbye:
      return "GOODBYE()";
  }
  return "damaged mark " + std::to_string(static_cast<int>(mark));
}

}  // namespace

bool Printer::read(void* out, size_t bytes) {
  if (body_.size() < bytes) return false;
  std::memcpy(out, body_.data(), bytes);
  return true;
}

void Printer::number(const char* name, const std::string& value) {
  if (!text_.empty()) text_ += ", ";
  text_ += name;
  text_ += '=';
  text_ += value;
}

void Printer::device_ptr(const char* name, uint64_t value) {
  const auto window = [&](uint64_t base, uint64_t stride, const char* kind) {
    const uint64_t device = (value - base) / stride;
    return kind + std::to_string(device) + "+" + hex((value - base) % stride);
  };
  constexpr uint64_t kDevices = 8;
  if (value >= ring::kDeviceWindowBase &&
      value < ring::kDeviceWindowBase + kDevices * ring::kDeviceWindowBytes)
    return number(name, window(ring::kDeviceWindowBase, ring::kDeviceWindowBytes, "dev"));
  if (value >= ring::kPinnedWindowBase &&
      value < ring::kPinnedWindowBase + kDevices * ring::kPinnedStride)
    return number(name, window(ring::kPinnedWindowBase, ring::kPinnedStride, "pinned"));
  if (value == 0) return number(name, "null");
  number(name, deterministic_ ? "host" : hex(value));
}

void Printer::handle(const char* name, const char* kind, uint64_t value) {
  if (value < 16) return number(name, std::to_string(value));
  const Handle h{value};
  number(name, std::string(kind) + "#" + std::to_string(h.index()) + "." +
                   std::to_string(h.generation()));
}

void Printer::f64(const char* name, uint64_t bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  number(name, text);
}

void Printer::object(const char* name, uint64_t value) {
  if (value == 0) return number(name, "null");
  const size_t type = ObjectId{value}.type_number();
  const char* kind = type < std::size(kObjectTypeNames) ? kObjectTypeNames[type] : "object";
  number(name, std::string(kind) + "#" + std::to_string(ObjectId{value}.number()));
}

void Printer::blas(const char* name, const BlasState& state) {
  handle(name, "cublas", state.handle);
  stream("stream", state.stream);
  u32("math_mode", state.math_mode);
  u32("pointer_mode", state.pointer_mode);
}

void Printer::scalar(const char* name, const Scalar& value) {
  number(name, value.high ? hex(value.low) + ":" + hex(value.high) : hex(value.low));
}

std::string print_entry(const ring::EntryHeader& header, std::span<const std::byte> body,
                        bool deterministic) {
  if (header.call < ring::kFirstCall) return print_mark(static_cast<ring::Mark>(header.call), body);
  const char* name = call_name(header.call);
  if (!name) return "unknown call " + std::to_string(header.call);
  Printer out(body, deterministic);
  if (!print_call(header.call, out)) return std::string(name) + "(damaged)";
  std::string text = std::string(name) + "(" + out.text() + ")";
  if (header.flags & ring::kHasPayload) text += " payload=" + std::to_string(header.payload_bytes);
  return text;
}

}  // namespace pyft
