"""Emit the server's side: backend table, its mock, dispatch with validation."""

from __future__ import annotations

from api_records import HANDLES, OBJECT_LIBRARIES, Api, Param, Record
from emit_library import pointer_type as object_pointer_type
from emit_wire import BANNER

RESOLVED = {
    "stream": "CUstream",
    "event": "CUevent",
    "module": "CUmodule",
    "kernel": "CUfunction",
    "cublas": "cublasHandle_t",
    "comm": "ncclComm_t",
    "graph": "CUgraph",
    "graph_exec": "CUgraphExec",
}


def backend_names(api: Api) -> list[Record]:
    """Return the records whose function the server calls."""
    return [r for r in api.records if r.backend and r.lib != "pyft"]


def pointer_type(record: Record, name: str = "") -> str:
    """Return the function pointer type, or with a name its declaration. Overloads rule out decltype."""
    if record.of_objects:
        return object_pointer_type(record, name)
    return f"{record.returns} (*{name})({', '.join(p.type for p in record.params)})"


def emit_table(api: Api) -> str:
    """Return backend_table.h: the one seam between server and GPU library."""
    lines = [BANNER, "#ifndef PYFT_BACKEND_TABLE_H_\n#define PYFT_BACKEND_TABLE_H_\n"]
    lines.append('#include <string>\n\n#include "backend/vendor.h"\n\nnamespace pyft::backend {\n')
    libraries = ("cudart", "cuda", "cublas", "cublasLt", "nccl", *OBJECT_LIBRARIES)
    lines.append(f"enum class Library {{ {', '.join(libraries)} }};")
    lines.append(f"inline constexpr int kLibraryCount = {len(libraries)};\n")
    lines.append(
        "// nullptr: the library lacks the function; the call is answered as not supported.\nstruct Table {"
    )
    lines.append(
        "  // Fills the functions of cudnn, cufft, …: empty, or why there are none. Null: none to fill."
    )
    lines.append("  std::string (*open_library)(const char* name) = nullptr;")
    lines.append("  // Why a function is null: a sentence. May be null itself.")
    lines.append("  std::string (*why_missing)(const char* function) = nullptr;")
    lines += [f"  {pointer_type(r, r.name)} = nullptr;" for r in backend_names(api)]
    lines.append(
        "};\n\n// Calls visit(name, library, void** slot) for every function of the table."
    )
    lines.append("template <class Visit>\nvoid for_each_function(Table& table, Visit visit) {")
    for r in backend_names(api):
        lines.append(
            f'  visit("{r.name}", Library::{r.lib}, reinterpret_cast<void**>(&table.{r.name}));'
        )
    lines.append("}\n\n}  // namespace pyft::backend\n\n#endif  // PYFT_BACKEND_TABLE_H_\n")
    return "\n".join(lines)


def emit_mock(api: Api) -> str:
    """Return mock_table.h: a table whose functions write their name into a list and succeed."""
    lines = [BANNER, "#ifndef PYFT_BACKEND_MOCK_TABLE_H_\n#define PYFT_BACKEND_MOCK_TABLE_H_\n"]
    lines.append(
        '#include "backend/mock.h"\n\nnamespace pyft::backend {\n\ninline Table mock_table() {\n  Table table;'
    )
    for index, r in enumerate(backend_names(api)):
        lines.append(f'  mock::names()[{index}] = "{r.name}";')
        lines.append(f"  table.{r.name} = mock::Function<{index}, {pointer_type(r)}>::call;")
    lines.append(
        "  return table;\n}\n\n}  // namespace pyft::backend\n\n#endif  // PYFT_BACKEND_MOCK_TABLE_H_\n"
    )
    return "\n".join(lines)


def argument(param: Param) -> str:
    """Return the expression handed to the backend for one parameter."""
    if param.kind in HANDLES:
        return f"r_{param.name}"
    if param.kind == "out":
        return f"&out_{param.name}"
    if param.kind == "device_ptr":
        return f"reinterpret_cast<{param.type}>(c.{param.name})"
    if param.kind.startswith("scalar"):
        return f"static_cast<{param.type}>(scalar_address(state, c.{param.name}))"
    if param.kind.startswith("result"):
        return f"static_cast<{param.type}>(result_address(state, c.{param.name}, result))"
    return f"static_cast<{param.type}>(c.{param.name})"


def handler(record: Record) -> list[str]:
    """Return the lines of one generated handler."""
    lines = [
        f"Status handle_{record.name}(Session& session, const EntryHeader& header, Body body) {{"
    ]
    lines.append(
        f'  cmd::{record.name} c;\n  if (!read_body(body, &c)) return short_body("{record.name}");'
    )
    for p in record.params:
        if p.kind == "cublas":
            lines.append(f"  const BlasState& state = c.{p.name};\n  cublasHandle_t r_{p.name};")
            lines.append(
                f"  if (!apply_blas_state(session, state, &r_{p.name})) return bad_handle(state.handle);"
            )
        elif p.kind in HANDLES:
            lines.append(f"  {RESOLVED[p.kind]} r_{p.name};")
            lines.append(
                f"  if (!resolve_{p.kind}(session, c.{p.name}, &r_{p.name})) return bad_handle(c.{p.name});"
            )
    outs = [p for p in record.params if p.kind == "out"]
    lines += [f"  std::remove_pointer_t<{p.type}> out_{p.name}{{}};" for p in outs]
    has_result = any(p.kind.startswith("result") for p in record.params)
    if has_result:
        lines.append("  uint64_t result[2] = {};")
    lines.append(f"  const auto function = session.backend().{record.name};")
    lines.append(
        f'  if (!function) return missing(session, header, "{record.name}", {missing_code(record)});'
    )
    lines.append(
        f"  const int code = static_cast<int>(function({', '.join(argument(p) for p in record.params)}));"
    )
    values = "result" if has_result else "nullptr"
    count = "2" if has_result else "0"
    if outs:
        lines.append(
            f"  uint64_t values[{len(outs)}] = {{{', '.join(f'to_word(out_{p.name})' for p in outs)}}};"
        )
        values, count = "values", str(len(outs))
    blas = record.lib.startswith("cublas")
    domain = "Domain::kCublas" if blas else "Domain::kCuda"
    lines.append(
        f'  return finish(session, header, "{record.name}", {domain}, code, {values}, {count});\n}}\n'
    )
    return lines


def missing_code(record: Record) -> str:
    """Return the library's code for a function that does not exist."""
    return "15" if record.lib.startswith("cublas") else "801"


def emit_dispatch(api: Api) -> str:
    """Return dispatch.cc: generated handlers and the switch over all commands."""
    lines = [
        BANNER,
        '#include "server/handlers/handlers.h"\n\nnamespace pyft::server {\nnamespace {\n',
    ]
    for record in api.commands:
        if record.generated and not record.of_objects:
            lines += handler(record)
    lines.append("}  // namespace\n")
    lines.append(
        "Status dispatch(Session& session, const EntryHeader& header, Body body, Body payload) {"
    )
    lines.append("  switch (static_cast<Call>(header.call)) {")
    for record in api.commands:
        name = record.name
        if record.generated:
            lines.append(f"    case Call::{name}: return handle_{name}(session, header, body);")
        else:
            lines.append(f"    case Call::{name}: {{\n      cmd::{name} c;")
            lines.append(f'      if (!read_body(body, &c)) return short_body("{name}");')
            lines.append(
                f"      return do_{name}(session, header, c, body.subspan(sizeof c), payload);\n    }}"
            )
    lines.append("  }\n  return unknown_call(header.call);\n}\n\n}  // namespace pyft::server\n")
    return "\n".join(lines)


def emit_handler_declarations(api: Api) -> str:
    """Return handler_declarations.h: the hand-written handlers dispatch calls."""
    lines = [BANNER, "#ifndef PYFT_HANDLER_DECLARATIONS_H_\n#define PYFT_HANDLER_DECLARATIONS_H_\n"]
    lines.append(
        "// Included by server/handlers/handlers.h only. `tail`: bytes behind the command struct."
    )
    lines.append("namespace pyft::server {\n")
    for record in api.commands:
        if record.of_objects and record.generated:
            lines.append(f"Status handle_{record.name}(Session&, const EntryHeader&, Body body);")
        elif not record.generated:
            lines.append(f"Status do_{record.name}(Session& session, const EntryHeader& header,")
            lines.append(f"    const cmd::{record.name}& c, Body tail, Body payload);")
    lines.append("\n}  // namespace pyft::server\n\n#endif  // PYFT_HANDLER_DECLARATIONS_H_\n")
    return "\n".join(lines)
