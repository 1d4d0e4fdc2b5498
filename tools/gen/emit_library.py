"""Emit the calls of cuDNN, cuFFT, cuRAND, cuSOLVER and cuSPARSE: stubs, handlers, header check.

Nothing here needs the vendor's headers: a parameter is a pointer, a 32-bit or 64-bit integer, or a
floating point number, and so it is passed. library_check.cc compares that, and every prototype,
with the headers where they are installed.
"""

from __future__ import annotations

from api_records import SCALARS, Api, Param, Record
from emit_wire import BANNER, WIDE

SMALL = ("float", "double", "signed char")
# Bytes of the elements of host arrays, and of values that are handed back.
ELEMENTS = {"int": 4, "int32_t": 4, "float": 4, "double": 8, "long long": 8, "size_t": 8}
ELEMENTS |= {"int64_t": 8, "void": 1, "char": 1}
HEADERS = {
    "cudnn": ("cudnn.h",),
    "cufft": ("cufft.h", "cufftXt.h"),
    "curand": ("curand.h",),
    "cusolver": ("cusolverDn.h",),
    "cusparse": ("cusparse.h",),
}


def calls(api: Api) -> list[Record]:
    """Return the records whose stubs and handlers are generated here."""
    return [r for r in api.records if r.of_objects and r.generated]


def head(param: Param) -> str:
    """Return the kind of a parameter without what it names."""
    return param.kind.partition(":")[0]


def tail(param: Param) -> str:
    """Return what the kind of a parameter names."""
    return param.kind.partition(":")[2]


def base(param: Param) -> str:
    """Return the type behind a pointer, without const."""
    return " ".join(w for w in param.type.replace("*", " ").split() if w != "const")


def plain(param: Param) -> str:
    """Return the C++ type a parameter is passed as."""
    of_plan = param.type.startswith("cufftHandle")
    if "*" in param.type or head(param) in ("in", "host_out", "device_ptr"):
        return "void*"
    if head(param) in ("object", "nullable", "end"):
        return "int" if of_plan else "void*"
    if head(param) == "sets_stream":
        return "void*"
    kind = " ".join(w for w in param.type.split() if w != "const")
    if kind in SMALL:
        return kind
    if WIDE.search(kind):
        return "uint64_t" if "size_t" in kind or "unsigned" in kind else "int64_t"
    return "int"


def out_bytes(param: Param) -> int:
    """Return the size of the value behind an `out` pointer: a pointer, a number or an enumerator."""
    return 8 if param.type.count("*") > 1 else ELEMENTS.get(base(param), 4)


def count_of(param: Param, prefix: str = "") -> str:
    """Return the C++ expression of the bytes of a host array; `prefix` stands before the count."""
    count, _, size = tail(param).partition("*")
    return f"array_bytes({count if count.isdigit() else prefix + count}, {size or ELEMENTS[base(param)]})"


def signature(record: Record) -> str:
    """Return the parameter list of the exported function."""
    return ", ".join(f"{plain(p)} {p.name}" for p in record.params)


def store(param: Param) -> str:
    """Return the statement that puts one parameter into the command."""
    name, kind = param.name, head(param)
    if kind in ("object", "nullable", "end"):
        verb = {"object": "use", "nullable": "use_or_null", "end": "end"}[kind]
        return f"call.{verb}({name}, ObjectType::{tail(param)}, &body.{name});"
    if kind == "new":
        return f"call.make(ObjectType::{tail(param)}, {name}, &body.{name});"
    if kind == "in":
        return f"call.in({name}, {count_of(param)}, &body.{name});"
    if kind == "host_out":
        return f"call.out_array({name}, {count_of(param)}, &body.{name});"
    if kind == "out":
        return f"call.out({name}, {out_bytes(param)});"
    if kind == "inout":
        return f"call.inout({name}, &body.{name});"
    if kind == "scalar":
        return f"body.{name} = call.scalar({name}, {scalar_bytes(param)}, &body.device_scalars);"
    if kind == "result":
        return f"body.{name} = call.result({name}, {scalar_bytes(param)}, &body.device_scalars);"
    if kind == "host_scalar":
        return f"body.{name} = call.host_scalar({name}, {tail(param)});"
    if kind == "null":
        return f"call.must_be_null({name});"
    if kind == "host_scratch":
        return ""
    if kind in ("sets_stream", "sets_pointer_mode", "sets_element"):
        return f"call.{kind}({name}, &body.{name});"
    if kind == "device_ptr":
        return f"body.{name} = reinterpret_cast<uint64_t>({name});"
    if param.type in ("float", "double"):
        return f"body.{name} = float_bits({name});"
    return f"body.{name} = static_cast<decltype(body.{name})>({name});"


def scalar_bytes(param: Param) -> str:
    """Return the C++ expression of the bytes behind a host scalar."""
    rest = tail(param)
    if rest.startswith("by_type:"):
        return f"type_bytes(static_cast<cudaDataType>({rest[8:]}))"
    return str(SCALARS[rest])


def stub(record: Record) -> list[str]:
    """Return the lines of one exported function."""
    lines = [f"PYFT_API int {record.name}({signature(record)}) {{"]
    lines.append(f"  const Entered entered(Api::{record.name});")
    lines.append(f"  LibraryCall call(ObjectLibrary::{record.lib}, Api::{record.name});")
    lines.append(f"  cmd::{record.name} body{{}};")
    lines += [f"  {text}" for p in record.params if (text := store(p))]
    verb = "wait" if record.route == "sync" else "send"
    lines.append(f"  return call.{verb}(Call::{record.name}, bytes_of(body));\n}}\n")
    return lines


def emit_stubs(api: Api) -> str:
    """Return library_stubs.cc."""
    lines = [
        BANNER,
        '#include "client/libraries/library_call.h"\n',
        "using namespace pyft;          // NOLINT",
    ]
    lines.append("using namespace pyft::client;  // NOLINT: generated bodies stay readable\n")
    for record in calls(api):
        lines += stub(record)
    return "\n".join(lines)


def pointer_type(record: Record, name: str = "") -> str:
    """Return the type of a table slot of such a library, or with a name its declaration."""
    result = "uint64_t" if record.returns == "size_t" else "int"
    return f"{result} (*{name})({', '.join(slot_type(p) for p in record.params)})"


def slot_type(param: Param) -> str:
    """Return the type the backend's function takes for a parameter."""
    return "void*" if head(param) == "new" else plain(param)


def given(param: Param) -> str:
    """Return the expression handed to the backend for one parameter."""
    name, kind = param.name, head(param)
    if kind in ("object", "nullable", "end"):
        return f"as_plan(r_{name})" if plain(param) == "int" else f"r_{name}"
    if kind == "new":
        return f"&r_{name}"
    if kind in ("in", "host_out", "host_scratch"):
        return f"r_{name}"
    if kind in ("out", "inout"):
        return f"&out_{name}"
    if kind == "scalar":
        return f"scalar_or_address(c.{name}, c.device_scalars)"
    if kind == "result":
        return f"c.device_scalars ? reinterpret_cast<void*>(c.{name}) : &out_{name}"
    if kind == "host_scalar":
        return f"const_cast<Scalar*>(&c.{name})"
    if kind == "null":
        return "nullptr"
    if kind == "sets_stream":
        return f"r_{name}"
    if kind == "device_ptr":
        return f"reinterpret_cast<void*>(c.{name})"
    if param.type in ("float", "double"):
        return f"static_cast<{param.type}>(float_of(c.{name}))"
    return f"static_cast<{plain(param)}>(c.{name})"


def prepare(param: Param) -> str:
    """Return the lines of a handler that resolve one parameter and check its size."""
    name, kind = param.name, head(param)
    if kind in ("object", "end"):
        find = f"find_object(session, c.{name}, ObjectType::{tail(param)}, &r_{name})"
        return f"  void* r_{name} = nullptr;\n  if (!{find}) return bad_handle(c.{name});"
    if kind == "nullable":
        find = f"find_object(session, c.{name}, ObjectType::{tail(param)}, &r_{name})"
        return (
            f"  void* r_{name} = nullptr;\n  if (c.{name} && !{find}) return bad_handle(c.{name});"
        )
    if kind == "new":
        return f"  void* r_{name} = nullptr;"
    if kind == "sets_stream":
        resolve = f"resolve_stream(session, c.{name}, &r_{name})"
        return f"  CUstream r_{name};\n  if (!{resolve}) return bad_handle(c.{name});"
    if kind == "in":
        return f"  void* const r_{name} = host.in(c.{name}, {count_of(param, 'c.')});"
    if kind == "host_out":
        return f"  void* const r_{name} = host.out(c.{name}, {count_of(param, 'c.')});"
    if kind == "host_scratch":
        return f"  void* const r_{name} = host_scratch(session, c.{tail(param)});"
    if kind in ("out", "result"):
        return f"  uint64_t out_{name} = 0;"
    if kind == "inout":
        return f"  uint64_t out_{name} = c.{name};"
    return ""


def handler(record: Record) -> list[str]:
    """Return the lines of one handler."""
    name = record.name
    lines = [f"Status handle_{name}(Session& session, const EntryHeader& header, Body body) {{"]
    lines.append(f'  cmd::{name} c;\n  if (!read_body(body, &c)) return short_body("{name}");')
    arrays = any(head(p) in ("in", "host_out") for p in record.params)
    if arrays:
        lines.append("  HostArrays host(body.subspan(sizeof c));")
    lines += [text for p in record.params if (text := prepare(p))]
    if arrays:
        lines.append(f'  if (!host.ok()) return bad_arrays("{name}");')
    lines.append(f"  const auto function = session.backend().{name};")
    lines.append(f'  if (!function) return missing_object_call(session, header, "{name}");')
    lines += [f"  forget_object(session, c.{p.name});" for p in record.params if head(p) == "end"]
    lines.append(f"  const int code = function({', '.join(given(p) for p in record.params)});")
    for p in record.params:
        if head(p) == "new":
            keep = f"keep_object(session, c.{p.name}, ObjectType::{tail(p)}, r_{p.name})"
            lines.append(f"  if (code == 0 && !{keep}) return bad_handle(c.{p.name});")
    outs = [f"out_{p.name}" for p in record.params if head(p) in ("out", "inout", "result")]
    lines.append(f"  const uint64_t values[] = {{{', '.join(outs) or '0'}}};")
    lines.append(
        f'  return finish_object_call(session, header, "{name}", code, values'
        + (", host.results());\n}\n" if arrays else ");\n}\n")
    )
    return lines


def emit_dispatch(api: Api) -> str:
    """Return library_dispatch.cc."""
    lines = [BANNER, '#include "server/handlers/library.h"\n\nnamespace pyft::server {\n']
    for record in calls(api):
        lines += handler(record)
    lines.append("}  // namespace pyft::server\n")
    return "\n".join(lines)


def check_param(param: Param) -> list[str]:
    """Return assertions that a parameter is passed as the vendor's type is."""
    lines = [f"static_assert(same_class<{param.type}, {plain(param)}>());"]
    if head(param) in ("in", "host_out") and base(param) != "void":
        size = tail(param).partition("*")[2] or ELEMENTS[base(param)]
        lines.append(f"static_assert(sizeof({base(param)}) == {size});")
    if head(param) == "out":
        pointed = param.type.rsplit("*", 1)[0]
        lines.append(f"static_assert(sizeof({pointed}) == {out_bytes(param)});")
    return lines


def emit_check(api: Api) -> str:
    """Return library_check.cc: the compiler compares all this with the vendor's headers."""
    lines = [BANNER, "#define CUDNN_WARN_DEPRECATED 0"]
    lines += [f"#include <{name}>" for names in HEADERS.values() for name in names]
    lines.append('\n#include "library_check.h"\n')
    lines.append('#pragma GCC diagnostic ignored "-Wdeprecated-declarations"\n')
    asserted: dict[str, None] = {}
    for record in api.records:
        if not record.of_objects or not record.proto:
            continue
        types = ", ".join(p.type for p in record.params)
        pointer = f"static_cast<{record.returns} (*)({types})>(&::{record.name})"
        lines.append(f"static_assert(sizeof({pointer}));")
        if record.generated:
            asserted |= dict.fromkeys(line for p in record.params for line in check_param(p))
    return "\n".join([*lines, *asserted]) + "\n"
