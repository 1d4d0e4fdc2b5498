"""Emit the client's side: stubs of generated routes, unimplemented stubs, export list, prototype check."""

from __future__ import annotations

from api_records import SCALARS, Api, Param, Record
from emit_wire import BANNER, exported, fields

# Library -> (result code of "not supported", C type of the result).
NOT_SUPPORTED = {
    "cudart": "801",
    "cuda": "801",
    "cublas": "15",
    "cublasLt": "15",
    "cudnn": "3000",
    "nccl": "5",
    "cufft": "16",
    "curand": "204",
    "cusolver": "9",
    "cusparse": "10",
    "cusparseLt": "10",
    "cupti": "27",
    "nvshmem": "1",
    "cufile": "5009",
}
# Functions whose result is an address, or a count: no address, nothing.
EMPTY_RESULTS = (
    *("nvshmem_malloc", "nvshmem_ptr", "nvshmemx_mc_ptr", "nvshmemid_init_status"),
    "nvshmem_team_n_pes",
)
TEXT_RESULTS = ("GetErrorString", "GetErrorName", "GetStatusString", "GetLastError")
# What shim/clock.cc puts in front of libstdc++ and libc.
_SECONDS = "NSt6chrono8durationIlSt5ratioILl1ELl1EEEE"
CLOCK = (
    "_ZNSt6chrono3_V212steady_clock3nowEv",
    "_ZNSt28__atomic_futex_unsigned_base26_M_futex_wait_until_steadyEPjjb"
    + _SECONDS
    + "NS2_IlS3_ILl1ELl1000000000EEEE",
    "pthread_cond_clockwait",
)


def signature(record: Record) -> str:
    """Return the C++ parameter list of a record."""
    return ", ".join(f"{p.type} {p.name}" for p in record.params)


def scalar_size(param: Param) -> str:
    """Return the C++ expression of the bytes behind a host scalar."""
    rest = param.kind.partition(":")[2]
    if rest == "by_compute":
        return "compute_scalar_bytes(computeType)"
    if rest.startswith("by_type:"):
        return f"type_bytes({rest[8:]})"
    return str(SCALARS[rest])


def assign(param: Param) -> str:
    """Return the statement that stores one parameter in the command."""
    if param.kind == "cublas":
        return f"body.{param.name} = wire_state(*blas);"
    if param.kind == "value":
        return f"body.{param.name} = static_cast<decltype(body.{param.name})>({param.name});"
    if param.kind.startswith("scalar"):
        return f"body.{param.name} = blas_scalar(*blas, {param.name}, {scalar_size(param)});"
    return f"body.{param.name} = reinterpret_cast<uint64_t>({param.name});"


def stub(record: Record) -> list[str]:
    """Return the lines of one generated client stub."""
    blas = any(p.kind == "cublas" for p in record.params)
    result = next((p for p in record.params if p.kind.startswith("result")), None)
    lines = [f"PYFT_API {record.returns} {record.name}({signature(record)}) {{"]
    lines.append(f"  const Entered entered(Api::{record.name});")
    if blas:
        handle = next(p.name for p in record.params if p.kind == "cublas")
        lines.append(f"  BlasHandle* blas = blas_handle({handle});")
        lines.append("  if (!blas) return CUBLAS_STATUS_NOT_INITIALIZED;")
    lines.append(f"  cmd::{record.name} body{{}};")
    lines += [f"  {assign(p)}" for p in record.params if p.kind != "out"]
    call = f"static_cast<uint16_t>(Call::{record.name})"
    if blas:
        told = next((p.name for p in record.params if p.kind == "out"), "")
        extra = f", {result.name}, {scalar_size(result)}" if result else f", {told}" if told else ""
        function = "blas_send_result" if result else "blas_ask" if told else "blas_send"
        lines.append(f"  return {function}(*blas, {call}, &body, sizeof body{extra});\n}}\n")
        return lines
    outs = [p for p in record.params if p.kind == "out"]
    pointers = "".join(f", {p.name}" for p in outs)
    stream = next((p.name for p in record.params if p.kind == "stream"), None)
    if record.route == "sync":
        lines.append(
            f"  return simple_call<{record.returns}>({call}, &body, sizeof body{pointers});\n}}\n"
        )
    else:
        value = f"reinterpret_cast<uint64_t>({stream})" if stream else "0"
        lines.append(
            f"  return simple_send<{record.returns}>({call}, {value}, &body, sizeof body);\n}}\n"
        )
    return lines


def per_thread_names(api: Api) -> list[str]:
    """Return the _ptsz and _ptds variants: the same calls, whose null stream is the thread's own."""
    return [f"{r.name}_{r.per_thread}" for r in api.records if r.per_thread]


def per_thread_stub(record: Record) -> str:
    """Return the variant of one call whose null stream is the calling thread's own."""
    return (
        f"PYFT_API {record.returns} {record.name}_{record.per_thread}({signature(record)}) {{\n"
        "  const OwnNullStream own;\n"
        f"  return {record.name}({', '.join(p.name for p in record.params)});\n}}\n"
    )


def second_name(record: Record) -> str:
    """Return a function under the name that NCCL has for programs which put theirs in front."""
    declaration = f'extern "C" {record.returns} {record.name}({signature(record)});\n'
    return ("" if record.in_header else declaration) + (
        f"PYFT_API {record.returns} p{record.name}({signature(record)}) {{\n"
        f"  return {record.name}({', '.join(p.name for p in record.params)});\n}}\n"
    )


def emit_stubs(api: Api) -> str:
    """Return client_stubs.cc."""
    lines = [
        BANNER,
        '#include "client/generated_calls.h"\n\n#pragma GCC diagnostic ignored "-Wdeprecated-declarations"\n',
        "using namespace pyft;          // NOLINT",
    ]
    lines.append("using namespace pyft::client;  // NOLINT: generated bodies stay readable\n")
    for record in api.records:
        if record.generated and not record.of_objects:
            lines += stub(record)
    lines += [per_thread_stub(record) for record in api.records if record.per_thread]
    lines += [second_name(record) for record in api.second_names]
    return "\n".join(lines)


def unimplemented(name: str, lib: str, kind: str = "") -> str:
    """Return one unimplemented stub: names itself once, counts, answers not supported."""
    if kind == "text" or (not kind and name.endswith(TEXT_RESULTS)):
        return f"PYFT_API const char* {name}() {{\n  return unimplemented_text(Api::{name});\n}}"
    if kind in ("empty", "real"):
        result = "Nothing" if kind == "empty" else "Zero"
        return (
            f"PYFT_API {result} {name}() {{\n  unimplemented(Api::{name}, 0);\n  return {{}};\n}}"
        )
    code = "0" if name in EMPTY_RESULTS else NOT_SUPPORTED[lib]
    function = {"cudart": "unimplemented_runtime", "nccl": "unimplemented_nccl"}.get(
        lib, "unimplemented"
    )
    return f"PYFT_API long {name}() {{\n  return {function}(Api::{name}, {code});\n}}"


def emit_unimplemented(api: Api) -> str:
    """Return unimplemented_stubs.cc. It includes no vendor header: the stubs have no parameters."""
    lines = [
        BANNER,
        '#include "client/process/unimplemented.h"\n\nusing namespace pyft;          // NOLINT',
    ]
    lines.append("using namespace pyft::client;  // NOLINT\n")
    lines += [
        unimplemented(r.name, r.lib)
        for r in api.records
        if r.route == "unsupported" and r.lib != "pyft"
    ]
    for lib, names in sorted(api.symbols.items()):
        lines += [unimplemented(name, lib) for name in names]
    for lib, kinds in sorted(api.exports.items()):
        lines += [unimplemented(name, lib, kind) for name, kind in kinds.items()]
    return "\n".join(lines) + "\n"


def emit_exports(api: Api, lib: str = "") -> str:
    """Return a linker version script: exactly these symbols, unversioned."""
    if lib:
        names = [*(r.name for r in api.records if r.lib == lib), *api.forwarded]
    else:
        names = [
            *exported(api),
            *per_thread_names(api),
            *(f"p{r.name}" for r in api.second_names),
            "pyft_cut",
            "pyft_cut_scope",
            "pyft_gate",
            "pyft_hold",
            "pyft_next_seq",
            "pyft_stats",
            *CLOCK,
        ]
    return "{\n  global:\n" + "".join(f"    {n};\n" for n in names) + "  local: *;\n};\n"


def emit_nvml_forward(api: Api) -> str:
    """Return nvml_forward.cc: the functions of NVML that go to the driver's as they are."""
    lines = [BANNER, '#include "nvml_driver.h"\n']
    return "\n".join([*lines, *(f"FORWARD_TO_DRIVER({n})" for n in api.forwarded)]) + "\n"


def emit_entry_points(api: Api) -> str:
    """Return entry_points.cc: name -> our function, for cuGetProcAddress and its relatives."""
    names = [r.name for r in api.records if r.lib in ("cuda", "cudart")]
    names += [n for lib in ("cuda", "cudart") for n in api.symbols.get(lib, [])]
    names += [*api.exports.get("cudart", {}), *per_thread_names(api)]
    lines = [BANNER, '#include "client/queries/entry_points.h"\n']
    lines += [f'extern "C" void pyft_entry_{n}() __asm__("{n}");' for n in names]
    lines.append("\nnamespace pyft::client {\n\nconst EntryPoint kEntryPoints[] = {")
    lines += [f'    {{"{n}", &pyft_entry_{n}}},' for n in sorted(names)]
    lines.append(
        f"}};\nconst unsigned kEntryPointCount = {len(names)};\n\n}}  // namespace pyft::client\n"
    )
    return "\n".join(lines)


def emit_proto_check(api: Api) -> str:
    """Return proto_check.cc: the compiler compares every prototype with the vendor's header."""
    lines = [BANNER, '#include "client/process/vendor.h"\n']
    lines.append('#pragma GCC diagnostic ignored "-Wdeprecated-declarations"\n')
    for record in api.records:
        if record.proto and record.in_header and record.lib != "nvml" and not record.of_objects:
            types = ", ".join(p.type for p in record.params)
            lines.append(
                f"static_assert(sizeof(static_cast<{record.returns} (*)({types})>(&::{record.name})));"
            )
    return "\n".join(lines) + "\n"


__all__ = [
    "emit_entry_points",
    "emit_exports",
    "emit_unimplemented",
    "emit_nvml_forward",
    "emit_proto_check",
    "emit_stubs",
    "fields",
]
