"""`pyft doctor --imports`: which functions of CUDA and its libraries a package's shared objects need, and how pyft has them.

Imports are exact: the dynamic symbols that an object leaves undefined. Names are a guess: strings in
its constant data that are functions' names, as programs give them to dlsym() and cuGetProcAddress().
"""

from __future__ import annotations

import importlib.metadata
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from pyft import _native
from pyft.cli.coverage import known_calls
from pyft.errors import NativeMissingError

# Library -> how its functions begin. The first that fits has a function.
LIBRARIES = {
    "nccl": r"p?nccl[A-Z]",
    "cublasLt": r"cublasLt[A-Z]",
    "cublas": r"cublas[A-Z]",
    "cudnn": r"cudnn[A-Z]",
    "cufft": r"cufft[A-Z]",
    "curand": r"curand[A-Z]",
    "cusolver": r"cusolver[A-Z]",
    "cusparseLt": r"cusparseLt[A-Z]",
    "cusparse": r"cusparse[A-Z]",
    "cupti": r"cupti[A-Z]",
    "nvml": r"nvml[A-Z]",
    "nvrtc": r"nvrtc[A-Z]",
    "nvJitLink": r"(__)?nvJitLink[A-Z]",
    "nvshmem": r"nvshmem[a-z]*_",
    "cufile": r"cuFile[A-Z]",
    "cudart": r"(__)?cuda[A-Z]",
    "cuda": r"cu[A-Z][A-Za-z]",
}
FAMILIES = {lib: re.compile(pattern) for lib, pattern in LIBRARIES.items()}
# What compiles code on the CPU is called as it is; what it makes comes to pyft to be loaded.
VENDOR = {"nvrtc", "nvJitLink"}
HOW = ("served", "partial", "forwarded", "vendor", "refused", "unknown")
EXPLAIN = {
    "served": "as without pyft",
    "partial": "with limits, which `pyft coverage --all` names",
    "forwarded": "go to the driver's own library",
    "vendor": "stay the vendor's: they work on the CPU only",
    "refused": "name themselves on stderr and return not-supported",
    "unknown": "pyft has none of that name: they reach the vendor's library, or are not found",
}
STRING = re.compile(rb"(?<![\x20-\x7e])((?:cu|__cuda|nccl|pnccl|nvml|nvrtc)[A-Za-z0-9_]{3,80})\0")
# What the driver's functions are about: other strings begin with its two letters as well.
DRIVER = re.compile(
    "cu(Array|Coredump|Ctx|Dev|Device|Driver|Event|External|Func|Get|Graph|Green|Init|Ipc|Kernel|Launch|"
    "Library|Link|Logs|Mem|Memcpy|Memset|Module|Multicast|Occupancy|Pointer|Profiler|Stream|Surf|Tensor|"
    "Tex|User|Wait)[A-Z0-9]\\w*|cuInit|cuMemcpy"
)
CONSTANT = (".rodata", ".data.rel.ro")
# So many driver functions are named by a CUDA runtime that is linked in, and by nothing else.
OWN_RUNTIME_NAMES = 250


MAGIC = b"\x7fELF"
# What the reader of ELF raises for files that are damaged, or are something else.
DAMAGED = (
    *(ELFError, ConstructError, OSError, ValueError, LookupError),
    *(TypeError, AttributeError, AssertionError, OverflowError, MemoryError),
)


# And that of wheels: also of a part that is encrypted, or packed in a way that Python does not know.
DAMAGED_WHEEL = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError)
Say = Callable[[str], None]


class ImportsError(Exception):
    """There is nothing to read."""


@dataclass
class Object:
    """A shared object: what it leaves undefined, which functions its strings name."""

    name: str
    imported: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    own_runtime: bool = False


@dataclass(frozen=True)
class Row:
    """A function that objects need. `by`: imported or named."""

    function: str
    library: str
    how: str
    by: str
    objects: tuple[str, ...]
    note: str = ""


def library_of(function: str) -> str | None:
    """Return the library a function belongs to, by its name."""
    return next((lib for lib, family in FAMILIES.items() if family.match(function)), None)


def symbols(elf: ELFFile) -> Iterator[tuple[str, bool]]:
    """Yield the dynamic symbols, and whether each is undefined."""
    table = elf.get_section_by_name(".dynsym")
    if isinstance(table, SymbolTableSection):
        for symbol in table.iter_symbols():
            yield symbol.name, symbol["st_shndx"] == "SHN_UNDEF"


def read_object(name: str, file: BinaryIO) -> Object:
    """Read one shared object; raises ELFError."""
    elf = ELFFile(file)
    found = Object(name)
    for symbol, undefined in symbols(elf):
        if not library_of(symbol):
            continue
        (found.imported if undefined else found.defined).add(symbol)
    for section in elf.iter_sections():
        if section.name.startswith(CONSTANT) and section["sh_type"] != "SHT_NOBITS":
            found.named |= {text.decode() for text in STRING.findall(section.data())}
    found.named -= found.imported | found.defined
    found.named = {text for text in found.named if library_of(text)}
    driver = [text for text in found.named if library_of(text) == "cuda"]
    if len(driver) >= OWN_RUNTIME_NAMES and "cuGetExportTable" in found.named:
        found.own_runtime, found.named = True, set()
    return found


def files_of(target: str, say: Say) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the shared objects of an installed package, a wheel, a folder or a file."""
    path = Path(target)
    try:
        if path.suffix == ".whl" and path.is_file():
            yield from _of_wheel(path, say)
            return
        files = _files(path, target)
    except OSError as error:  # such as a name that is too long
        raise ImportsError(f"[{target}] cannot be read: {error.strerror}") from None
    for file in files:
        if (is_shared(file.name) or file == path) and file.is_file():
            try:
                opened = file.open("rb")
            except OSError as error:
                say(f"[{file}] cannot be read, and is left out: {error.strerror}")
                continue
            with opened:
                yield str(file), opened


def _of_wheel(path: Path, say: Say) -> Iterator[tuple[str, BinaryIO]]:
    try:
        wheel = zipfile.ZipFile(path)
    except DAMAGED_WHEEL as error:
        raise ImportsError(f"[{path}] is no wheel: {error}") from None
    with wheel:
        for name in filter(is_shared, wheel.namelist()):
            try:
                data = wheel.read(name)
            except DAMAGED_WHEEL as error:
                say(f"[{name}] cannot be read, and is left out: {error}")
                continue
            yield name, io.BytesIO(data)


def _files(path: Path, target: str) -> list[Path]:
    """Return the files of a folder, of a package, or the one that is named."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    if path.is_file():
        return [path]
    try:
        owned = importlib.metadata.files(target) or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        raise ImportsError(f"[{target}] is no installed package, no file and no folder") from None
    return [Path(str(file.locate())) for file in owned]


def is_shared(name: str) -> bool:
    return bool(re.search(r"\.so(\.\d+)*$", name))


def objects_of(target: str, say: Say = lambda _: None) -> list[Object]:
    """Read all shared objects of a target; raises ImportsError if there are none.

    `say`: told of each that cannot be read. A linker script, or a file of another kind with such a
    name, is none.
    """
    found = []
    for name, file in files_of(target, say):
        if file.read(len(MAGIC)) != MAGIC:
            continue
        try:
            found.append(read_object(name, file))
        except DAMAGED as error:
            why = str(error) or type(error).__name__
            say(f"[{name}] is a damaged shared object, and is left out: {why}")
    if not found:
        raise ImportsError(f"[{target}] has no shared objects")
    return found


class Served:
    """How pyft has each function: its records, and what its libraries export."""

    def __init__(self, records: list[dict[str, Any]], exported: set[str]) -> None:
        self._records = {row["name"]: row for row in records}
        self._exported = exported

    def how(self, function: str, by: str) -> tuple[str, str]:
        """Return how a function is served, and the note of its record."""
        plain = re.sub(r"_pt[sd][sz]$", "", function)
        names = [function, plain, plain.removeprefix("p") if plain[:5] == "pnccl" else plain]
        if by == "named":  # cuGetProcAddress takes names without a version
            names += [f"{plain}_v{version}" for version in (4, 3, 2)]
        for name in names:
            if row := self._records.get(name):
                how = {"full": "served", "unsupported": "refused"}.get(row["support"], "partial")
                return how, row["note"]
        if any(name in self._exported for name in names):
            return ("forwarded" if library_of(function) == "nvml" else "refused"), ""
        return ("vendor" if library_of(function) in VENDOR else "unknown"), ""

    def knows(self, function: str) -> bool:
        return self.how(function, "named")[0] != "unknown"


def installed_calls() -> Served:
    """Return how the installed pyft has each function."""
    records, exported = known_calls(), set()
    for name in ("libpyft_shim.so", "libpyft_nvml.so"):
        path = _native.native_dir() / name
        try:
            with path.open("rb") as file:
                found = [symbol for symbol, undefined in symbols(ELFFile(file)) if not undefined]
        except DAMAGED as error:
            raise NativeMissingError(
                f"[{path}] cannot be read: {error}: install pyft again"
            ) from None
        exported |= set(found)
    return Served(records, exported)


def rows(objects: list[Object], served: Served) -> list[Row]:
    """Return a row for each function that an object imports, or names and pyft may have.

    A name counts if pyft knows it, or if the driver's functions have such names: other strings begin
    like a library's functions too.
    """
    needs: dict[tuple[str, str], set[str]] = {}
    imported = {function for one in objects for function in one.imported}
    # What one of the package's own libraries has is not looked for elsewhere.
    own = {function for one in objects for function in one.defined}
    for one in objects:
        for function in one.imported:
            needs.setdefault((function, "imported"), set()).add(one.name)
        for function in one.named - imported:
            if DRIVER.fullmatch(function) or served.knows(function):
                needs.setdefault((function, "named"), set()).add(one.name)
    found = []
    for (function, by), names in needs.items():
        if function in own:
            continue
        how, note = served.how(function, by)
        library = library_of(function) or ""
        found.append(Row(function, library, how, by, tuple(sorted(names)), note))
    order = {how: number for number, how in enumerate(HOW)}
    found.sort(key=lambda row: (-order[row.how], row.by, row.library, row.function))
    return found


def report(target: str, objects: list[Object], found: list[Row]) -> str:
    """Return the text for people."""
    lines = [f"{target}: {len(objects)} shared objects"]
    for by, title in (("imported", "imports"), ("named", "names, by a guess")):
        counts = [(how, sum(row.how == how and row.by == by for row in found)) for how in HOW]
        text = ", ".join(f"{count} {how}" for how, count in counts if count)
        lines.append(f"  {title}: {text or 'nothing of CUDA'}")
    for one in objects:
        if one.own_runtime:
            lines.append(
                f"  {one.name}: has a CUDA runtime of its own inside (or is CUPTI): pyft refuses that"
            )
    for how in HOW[::-1]:
        shown = [row for row in found if row.how == how and how in ("refused", "unknown")]
        if shown:
            lines += ["", f"{how}: {EXPLAIN[how]}"]
        for row in shown:
            guess = "  (a name)" if row.by == "named" else ""
            note = f": {row.note}" if row.note else ""
            where = Path(row.objects[0]).name + (" ..." if len(row.objects) > 1 else "")
            lines.append(f"  {row.library:10} {row.function}{guess}  in {where}{note}")
    return "\n".join(lines)
