"""Read proxy/api/*.toml into checked records; every mistake is refused with the record's name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import api_files
import vendor_exports

FIRST_ID = 64
ROUTES = ("async", "sync", "local", "handwritten", "unsupported")
CREATIONS = ("", "minted", "checked", "confirmed")
SUPPORTS = ("full", "partial", "unsupported")
REPLAYS = re.compile(r"^(none|read|mutate|configure|(create|destroy):[a-z0-9_]+)$")
HANDLES = ("stream", "event", "module", "kernel", "cublas", "comm", "graph", "graph_exec")
# Types of the fields of a hand-written command and of argument annotations: name -> C++ type.
FIELD_TYPES = {
    "u32": "uint32_t",
    "i32": "int32_t",
    "u64": "uint64_t",
    "i64": "int64_t",
    "device_ptr": "uint64_t",
    "host_ptr": "uint64_t",
    **{name: "uint64_t" for name in HANDLES},
    **{f"new_{name}": "uint64_t" for name in HANDLES},
    "object": "uint64_t",
}
SCALARS = {"f16": 2, "f32": 4, "f64": 8, "c32": 8, "c64": 16, "i32": 4}
# Libraries whose calls are made of their records alone, without the vendor's headers: handles,
# descriptors and plans are objects of the server, known to the client by number (emit_library.py).
OBJECT_LIBRARIES = ("cudnn", "cufft", "curand", "cusolver", "cusparse")
LIBRARIES = (
    *("cudart", "cuda", "cublas", "cublasLt", "nccl", "nvml", "cupti"),
    *OBJECT_LIBRARIES,
    "pyft",
)
# Types of such objects. The place in the list is part of the handle: append only.
OBJECT_TYPES = (
    "cudnn",
    "cudnn_descriptor",
    "cudnn_tensor",
    "cudnn_filter",
    "cudnn_convolution",
    "cudnn_activation",
    "cudnn_pooling",
    "cudnn_dropout",
    "cudnn_rnn",
    "cudnn_rnn_data",
    "cudnn_ctc_loss",
    "cudnn_spatial_transformer",
    "cufft_plan",
    "curand",
    "cusolver",
    "cusolver_params",
    "cusolver_syevj",
    "cusolver_gesvdj",
    "cusparse",
    "cusparse_matrix_info",
    "cusparse_sparse_matrix",
    "cusparse_dense_matrix",
    "cusparse_dense_vector",
    "cusparse_spsv",
    "cusparse_spsm",
    "cusparse_spgemm",
    "cusparse_bsrsv2",
    "cusparse_bsrsm2",
)
# Argument kinds of these libraries; `object:`, `new:`, `end:` name a type, `in:` and `in_out:` a
# count of elements, `element:` says of which descriptor.
OBJECT_KINDS = re.compile(
    r"^((object|nullable|new|end):(?P<type>\w+)|(in|host_out):(?P<count>\w+)(\*\d+)?"
    r"|host_scalar:(?P<of>\w+)|host_scratch:(?P<bytes>\w+)|inout|sets_stream|sets_pointer_mode|sets_element|null)$"
)
KNOWN_KEYS = {
    "id",
    "header",
    "route",
    "creation",
    "args",
    "wire",
    "payload",
    "backend",
    "replay",
    "support",
    "note",
    "per_thread",
}
IN_BODY = ("value", "device_ptr", *HANDLES)


class RecordError(Exception):
    """A record cannot be used; the text names file, record and reason."""


@dataclass(frozen=True)
class Param:
    """One parameter of the C prototype with its annotation."""

    type: str
    name: str
    kind: str  # value, out, device_ptr, a handle kind, scalar:X or result:X


@dataclass
class Record:
    """One API call, or one command that only exists on the ring (lib = "pyft")."""

    name: str
    file: str
    lib: str
    route: str
    support: str
    replay: str
    id: int | None = None
    creation: str = ""
    note: str = ""
    proto: str = ""
    returns: str = ""
    params: list[Param] = field(default_factory=list)
    wire: list[tuple[str, str]] = field(default_factory=list)
    payload: bool = False
    backend: bool = False
    in_header: bool = True
    per_thread: str = ""  # suffix of the variant whose null stream is the thread's own

    @property
    def generated(self) -> bool:
        """True when client stub and server handler are generated."""
        return self.route in ("async", "sync")

    @property
    def of_objects(self) -> bool:
        """True for calls of the libraries that are known by their records alone."""
        return self.lib in OBJECT_LIBRARIES


@dataclass
class Api:
    """All records plus the symbols that are unimplemented stubs without a record."""

    records: list[Record]
    symbols: dict[str, list[str]]  # library -> names
    vendor: dict[str, str] = field(default_factory=dict)  # library -> why it is not ours
    # What the vendor's libraries export beyond all that: library -> name -> what it returns.
    exports: dict[str, dict[str, str]] = field(default_factory=dict)
    # Functions under NCCL's second names, which programs that wrap NCCL call.
    second_names: list[Record] = field(default_factory=list)
    forwarded: list[str] = field(default_factory=list)  # functions of NVML that the driver answers

    @property
    def commands(self) -> list[Record]:
        """Return the records that have a command on the ring, by id."""
        return sorted((r for r in self.records if r.id is not None), key=lambda r: r.id or 0)


def split_prototype(proto: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return (return type, name, [(type, name)]) of a C prototype on one line."""
    match = re.fullmatch(r"(.*?)(\w+)\((.*)\)", proto.strip())
    if not match:
        raise ValueError(f"prototype [{proto}] is not 'type name(arguments)'")
    params: list[tuple[str, str]] = []
    for text in match[3].split(","):
        text = text.strip()
        if text in ("", "void"):
            continue
        one = re.fullmatch(r"(.*?)(\w+)(\[\d*\])?", text)
        if not one or not one[1].strip():
            raise ValueError(f"parameter [{text}] has no type or no name")
        params.append((one[1].strip() + (" *" if one[3] else ""), one[2]))
    return match[1].strip(), match[2], params


def check_kind(kind: str, names: set[str]) -> str | None:
    """Return why an argument annotation is wrong, or None."""
    if kind in ("value", "out", "device_ptr", *HANDLES):
        return None
    if found := OBJECT_KINDS.match(kind):
        named = found["count"] or found["of"] or found["bytes"]
        if found["type"] and found["type"] not in OBJECT_TYPES:
            return f"object type [{found['type']}] does not exist"
        return None if not named or named.isdigit() or named in names else f"no [{named}]"
    head, _, rest = kind.partition(":")
    if head in ("scalar", "result"):
        if rest in SCALARS or (rest == "by_compute" and "computeType" in names):
            return None
        if rest.startswith("by_type:") and rest[8:] in names:
            return None
    return f"annotation [{kind}] is unknown or names no parameter"


def parse_wire(entries: list[str]) -> list[tuple[str, str]]:
    """Return [(kind, field)] and refuse fields that would leave padding."""
    fields, offset = [], 0
    for text in entries:
        kind, _, name = text.partition(" ")
        if kind not in FIELD_TYPES or not name.isidentifier():
            raise ValueError(f"wire field [{text}] is not 'type name' with a known type")
        size = 4 if kind in ("u32", "i32") else 8
        if offset % size:
            raise ValueError(f"wire field [{text}] is not aligned: add a u32 before it")
        offset += size
        fields.append((kind, name))
    if offset % 8:
        raise ValueError("wire fields do not fill 8-byte units: add a u32 at the end")
    return fields


def make_record(file: str, name: str, data: dict, declared: tuple[str, str]) -> Record:
    """Check one TOML table and return its record; `declared`: its library and prototype."""
    unknown = set(data) - KNOWN_KEYS
    if unknown:
        raise ValueError(f"unknown key [{sorted(unknown)[0]}]")
    for key, allowed in (("route", ROUTES), ("support", SUPPORTS)):
        if data.get(key) not in allowed:
            raise ValueError(f"[{key}] is [{data.get(key)}], not one of {', '.join(allowed)}")
    lib, proto = declared
    if lib not in LIBRARIES:
        raise ValueError(f"its prototype lies in {lib}.txt, which is no library")
    if data.get("creation", "") not in CREATIONS:
        raise ValueError(
            f"[creation] is [{data['creation']}], not one of {', '.join(CREATIONS[1:])}"
        )
    if not REPLAYS.match(data.get("replay", "")):
        raise ValueError(f"[replay] is [{data.get('replay')}], which is no replay class")
    record = Record(
        name=name,
        file=file,
        lib=lib,
        route=data["route"],
        support=data["support"],
        replay=data["replay"],
        id=data.get("id"),
        creation=data.get("creation", ""),
        note=data.get("note", ""),
        proto=proto,
        payload=data.get("payload", False),
        backend=data.get("backend", False),
        in_header=data.get("header", True),
        per_thread=data.get("per_thread", ""),
    )
    if record.per_thread not in ("", "ptsz", "ptds"):
        raise ValueError(f"[per_thread] is [{record.per_thread}], not ptsz or ptds")
    if record.support != "full" and not record.note:
        raise ValueError("[note] is required unless support is full")
    if (record.route == "unsupported") != (record.support == "unsupported"):
        raise ValueError("route and support must both say unsupported, or neither")
    fill_prototype(record, data.get("args", {}))
    fill_command(record, data)
    return record


def fill_prototype(record: Record, args: dict[str, str]) -> None:
    """Parse the prototype and join it with the argument annotations."""
    if record.lib == "pyft":
        return
    record.returns, _, params = split_prototype(record.proto)
    names = {n for _, n in params}
    for arg, kind in args.items():
        if arg not in names:
            raise ValueError(f"[args] names [{arg}], which the prototype lacks")
        if OBJECT_KINDS.match(kind) and record.lib not in OBJECT_LIBRARIES:
            raise ValueError(f"argument [{arg}]: kind [{kind}] is not for [{record.lib}]")
        if why := check_kind(kind, names):
            raise ValueError(f"argument [{arg}]: {why}")
    record.params = [Param(t, n, args.get(n, "value")) for t, n in params]
    for param in record.params if record.generated else ():
        if param.kind == "value" and "*" in param.type:
            raise ValueError(f"argument [{param.name}] is a pointer without annotation")


def fill_command(record: Record, data: dict) -> None:
    """Check id and wire fields: a call that crosses the ring needs both, no other may have them."""
    record.wire = parse_wire(data.get("wire", []))
    if record.generated:
        record.backend = True
        if record.wire:
            raise ValueError(
                "[wire] is for hand-written commands; generated ones follow the prototype"
            )
    crosses = record.generated or bool(record.wire)
    if crosses and (not isinstance(record.id, int) or not FIRST_ID <= record.id <= 65535):
        raise ValueError(
            f"[id] is [{record.id}]; a command needs a number from {FIRST_ID} to 65535"
        )
    if not crosses and record.id is not None:
        raise ValueError("[id] is given but nothing crosses the ring")


# Commands that only exist on the ring begin so; every other function has a prototype.
RING_ONLY = "pyft"


def declared(name: str, prototypes: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Return library and prototype of a call, or of a command of the ring."""
    if name in prototypes:
        return prototypes[name]
    if name.startswith(RING_ONLY):
        return RING_ONLY, ""
    raise ValueError(f"no prototype: run tools/gen/prototypes.py {name}")


def load_file(path: Path, api: Api, prototypes: dict[str, tuple[str, str]]) -> None:
    """Add what one file of records has."""
    tables = api_files.tables(path)
    api.symbols.update(tables.get("symbols", {}))
    api.vendor.update(tables.get("vendor_libraries", {}))
    known = {record.name: record for record in api.records}
    ids = {record.id: record.name for record in api.records}
    for name, data in api_files.records(tables):
        try:
            record = make_record(path.stem, name, data, declared(name, prototypes))
            if record.id is not None and record.id in ids:
                raise ValueError(f"[id] {record.id} is already used by [{ids[record.id]}]")
            if name in known:
                raise ValueError(f"is already described in {known[name].file}.toml")
        except ValueError as error:
            raise ValueError(f"[{name}]: {error}") from None
        known[name], ids[record.id] = record, name
        api.records.append(record)


def load(folder: Path) -> Api:
    """Read every *.toml of `folder`, with the prototypes in `folder`/prototypes."""
    api = Api([], {})
    try:
        prototypes = api_files.prototypes(folder / "prototypes")
    except ValueError as error:
        raise RecordError(str(error)) from None
    for path in sorted(folder.glob("*.toml")):
        try:
            load_file(path, api, prototypes)
        except ValueError as error:
            raise RecordError(f"{path.name}: {error}") from None
    here = {record.name for record in api.records}
    if stray := sorted(set(prototypes) - here):
        raise RecordError(f"{prototypes[stray[0]][0]}.txt: [{stray[0]}] has no record")
    for names in api.symbols.values():
        for name in here.intersection(names):
            raise RecordError(f"[{name}] has a record and is listed as a stub too")
    return add_exports(api, folder / "vendor_exports")


def add_exports(api: Api, folder: Path) -> Api:
    """Add what the vendor's libraries export and `api` does not have."""
    here = {r.name: r for r in api.records}
    known = {*here, *(f"{r.name}_{r.per_thread}" for r in api.records if r.per_thread)}
    known |= {name for names in api.symbols.values() for name in names}
    for lib, kinds in vendor_exports.read(folder).items():
        first = [here.get(name[1:]) for name in kinds if name.startswith("pnccl")]
        api.second_names += [r for r in first if r and r.route != "unsupported"]
        known |= {f"p{r.name}" for r in api.second_names}
        api.exports[lib] = {name: kind for name, kind in kinds.items() if name not in known}
        if stuck := [name for name, kind in api.exports[lib].items() if kind == "memory"]:
            raise RecordError(f"{lib}.txt: [{stuck[0]}] returns memory: it needs a record")
    api.forwarded = list(api.exports.pop("nvml", {}))
    return api
