"""Emit what the fuzzer of dispatch begins with: an entry of each command, and a GPU library for it.

seeds.cc has a valid entry of every command, filled by the kinds of its fields. What a record does
not say of a hand-written command says tests/wire/seed_hints.h; without a word there the command
has its seed all the same. fakes.cc has functions that touch their arguments as the records say.
"""

from __future__ import annotations

import emit_library
from api_records import HANDLES, Api, Param, Record
from emit_server import pointer_type
from emit_wire import BANNER, field_of

# Values of fields, in the names of tests/wire/seed_hints.h.
HANDLE_KINDS = {
    "stream": "kStream",
    "event": "kEvent",
    "module": "kModule",
    "kernel": "kKernel",
    "cublas": "kCublas",
    "comm": "kCommunicator",
    "graph": "kGraph",
    "graph_exec": "kGraphExec",
}
PLAIN = {
    "device_ptr": "kSeedAddress",
    "host_ptr": "kSeedPinned",
    "BlasState": "seed_blas()",
    "Scalar": "kSeedScalar",
    "f64": "kSeedFloat",
}


def of_kind(kind: str) -> str:
    """Return the value of a field with the kind of an argument or of a wire field."""
    head, _, rest = kind.partition(":")
    if head in ("object", "nullable", "end") and rest:
        return f"seed_object(ObjectType::{rest})"
    if head == "new":
        return f"new_seed_object(ObjectType::{rest})"
    if kind in HANDLES:
        return f"seed_handle(HandleKind::{HANDLE_KINDS[kind]})"
    if kind.removeprefix("new_") in HANDLES:
        return f"new_seed_handle(HandleKind::{HANDLE_KINDS[kind.removeprefix('new_')]})"
    return PLAIN.get(kind, "1")  # a count, a number, an object of any type


def array_bytes(param: Param) -> int:
    """Return how long an array of a seed is: every count is 1."""
    count, _, size = emit_library.tail(param).partition("*")
    element = int(size or emit_library.ELEMENTS[emit_library.base(param)])
    return element * (int(count) if count.isdigit() else 1)


def of_param(param: Param) -> str:
    """Return the value of the field that carries one parameter, empty where there is none."""
    ctype, print_kind = field_of(param)
    head = emit_library.head(param)
    if head in ("in", "host_out"):
        return str(array_bytes(param))
    if head == "sets_stream":
        return of_kind("stream")
    if head == "result":
        return PLAIN["device_ptr"]
    if param.kind == "value" and print_kind == "f64":
        return PLAIN["f64"]
    return PLAIN.get(ctype) or of_kind(param.kind) if ctype else ""


def assignments(record: Record) -> list[tuple[str, str]]:
    """Return [(field, value)] of a seed; what stays 0 is left out."""
    if record.wire:
        named = [(name, kind) for kind, name in record.wire]
        return [(n, of_kind(k)) for n, k in named if not n.startswith(("reserved", "padding"))]
    return [(p.name, value) for p in record.params if (value := of_param(p))]


def seed(record: Record) -> list[str]:
    """Return the lines of the function that makes the seed of one command."""
    name = record.name
    lines = [f"Seed seed_{name}() {{\n  cmd::{name} c{{}};\n  Message tail, payload;"]
    lines += [f"  c.{field} = {value};" for field, value in assignments(record)]
    tail = sum((array_bytes(p) + 7) // 8 * 8 for p in record.params if emit_library.head(p) == "in")
    if tail and record.of_objects:
        lines.append(f"  tail.assign({tail}, 1);")
    if record.payload:
        lines.append("  payload.assign(kSeedPayload, 1);")
    if not record.generated:
        lines.append("  seed_hint(c, &tail, &payload);")
    waits = "false" if record.route == "async" else "true"
    lines.append(f"  return seed_of(Call::{name}, c, {waits}, tail, payload);\n}}\n")
    return lines


def emit_seeds(api: Api) -> str:
    """Return seeds.cc."""
    lines = [BANNER, '#include "wire/seed_hints.h"\n\nnamespace pyft {\nnamespace {\n']
    for record in api.commands:
        lines += seed(record)
    lines.append("}  // namespace\n\nstd::vector<Seed> seeds() {\n  return {")
    lines += [f"      seed_{record.name}()," for record in api.commands]
    lines.append("  };\n}\n\n}  // namespace pyft\n")
    return "\n".join(lines)


def touch(record: Record, param: Param) -> str:
    """Return the statement by which a library uses one of its arguments, empty: it does not."""
    head, name = emit_library.head(param), param.name
    if head == "new":
        return f"  make_object({name});"
    if head == "out" and not record.of_objects:
        return f"  write_to({name}, sizeof *{name});"
    if head == "host_scratch":
        return f"  work_in({name}, {emit_library.tail(param)});"
    if head in ("out", "inout"):
        return f"  write_to({name}, {emit_library.out_bytes(param)});"
    count = server_count(param) if head in ("in", "host_out") else ""
    if head == "in":
        return f"  look_at({name}, {count});"
    return f"  write_to({name}, {count});" if head == "host_out" else ""


def server_count(param: Param) -> str:
    """Return the C++ expression of the bytes of an array that the library is given."""
    return emit_library.count_of(param).replace("array_bytes", "pyft::server::array_bytes")


def fake(record: Record) -> list[str]:
    """Return the lines of one function of the library: how it fails, and what it touches."""
    touches = [text for p in record.params if (text := touch(record, p))]
    result = "int" if record.of_objects else record.returns
    types = [emit_library.slot_type(p) if record.of_objects else p.type for p in record.params]
    given = ", ".join(f"{t} {p.name}" for t, p in zip(types, record.params, strict=True))
    lines = [f"{result} fake_{record.name}({given}) {{"]
    lines.append(f"  if (fails()) return static_cast<{result}>(1);")
    return [*lines, *touches, "  return {};\n}\n"]


def emit_fakes(api: Api) -> str:
    """Return fakes.cc: functions for every command that is generated."""
    generated = [r for r in api.commands if r.generated]
    touching = {r.name for r in generated if any(touch(r, p) for p in r.params)}
    lines = [BANNER, '#include "wire/fake_calls.h"\n\nnamespace fuzz_backend {\nnamespace {\n']
    for record in generated:
        if record.name in touching:
            lines += fake(record)
    lines.append("}  // namespace\n\nvoid set_fakes(pyft::backend::Table& table) {")
    for r in generated:
        function = f"fake_{r.name}" if r.name in touching else f"Flaky<{pointer_type(r)}>::call"
        lines.append(f"  table.{r.name} = {function};")
    lines.append("}\n\n}  // namespace fuzz_backend\n")
    return "\n".join(lines)
