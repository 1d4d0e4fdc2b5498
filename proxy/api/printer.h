// One line of text per ring entry, for the trace reader and for error messages.
#ifndef PYFT_API_PRINTER_H_
#define PYFT_API_PRINTER_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "api/wire_types.h"
#include "ring/layout.h"

namespace pyft {

// Collects "name=value" pieces; the generated print_call() calls one method per field.
class Printer {
 public:
  Printer(std::span<const std::byte> body, bool deterministic)
      : body_(body), deterministic_(deterministic) {}

  bool read(void* out, size_t bytes);
  void u32(const char* name, uint32_t value) { number(name, std::to_string(value)); }
  void i32(const char* name, int32_t value) { number(name, std::to_string(value)); }
  void u64(const char* name, uint64_t value) { number(name, std::to_string(value)); }
  void i64(const char* name, int64_t value) { number(name, std::to_string(value)); }
  void device_ptr(const char* name, uint64_t value);
  void host_ptr(const char* name, uint64_t value) { device_ptr(name, value); }
  void stream(const char* name, uint64_t value) { handle(name, "stream", value); }
  void event(const char* name, uint64_t value) { handle(name, "event", value); }
  void module(const char* name, uint64_t value) { handle(name, "module", value); }
  void kernel(const char* name, uint64_t value) { handle(name, "kernel", value); }
  void cublas(const char* name, uint64_t value) { handle(name, "cublas", value); }
  void comm(const char* name, uint64_t value) { handle(name, "comm", value); }
  void graph(const char* name, uint64_t value) { handle(name, "graph", value); }
  void graph_exec(const char* name, uint64_t value) { handle(name, "graph_exec", value); }
  void f64(const char* name, uint64_t bits);
  void object(const char* name, uint64_t value);  // of a library: "cusolver#3"
  void blas(const char* name, const BlasState& state);
  void scalar(const char* name, const Scalar& value);
  void result(const char* name, uint64_t value) { device_ptr(name, value); }
  const std::string& text() const { return text_; }

 private:
  void number(const char* name, const std::string& value);
  void handle(const char* name, const char* kind, uint64_t value);

  std::span<const std::byte> body_;
  bool deterministic_;
  std::string text_;
};

// Generated: prints the fields of a call's command. False for an unknown id or a short body.
bool print_call(uint16_t call, Printer& out);

// "cudaMemsetAsync(stream=0, dst=dev0+0x200, …)". `deterministic` leaves out what may differ
// between two runs of the same program (host addresses); sequence, thread and time are the
// caller's to print.
std::string print_entry(const ring::EntryHeader& header, std::span<const std::byte> body,
                        bool deterministic = false);

}  // namespace pyft

#endif  // PYFT_API_PRINTER_H_
