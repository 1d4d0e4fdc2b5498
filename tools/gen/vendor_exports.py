"""The functions that the vendor's libraries export, as data: what programs can call besides PyTorch.

    vendor_exports.py --add LIB FILE...   add what a library exports that is in no package (NVML), or the
                                          names in another file, such as nvidia-ml-py's
    vendor_exports.py --update     rewrite proxy/api/vendor_exports/*.txt from the installed packages
    vendor_exports.py              say what the installed libraries export beyond those lists

A machine that builds need not have these libraries, so the names are checked in. Each becomes a unimplemented stub
unless a record or a list in proxy/api/*.toml has it (api_records.py). Names only ever get more: a
program may have been made with another version of the library.

Listed are functions whose name begins as the library's do. Not listed are C++ symbols (cuDNN's parts
export thousands to each other, and no header declares them) and data. cuDNN's parts, which `libcudnn.so.9`
loads, count as that one library: some programs are linked to a part.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "proxy" / "api" / "vendor_exports"
# Library -> (files of the packages, how its functions begin).
LIBRARIES = {
    "cudart": ("libcudart.so.13", r"cuda[A-Z]|__cuda[A-Z]"),
    "cublas": ("libcublas.so.13", r"cublas[A-Z]"),
    "cublasLt": ("libcublasLt.so.13", r"cublasLt"),
    "cudnn": ("libcudnn*.so.9", r"cudnn[A-Z]"),
    "nccl": ("libnccl.so.2", r"p?nccl[A-Z]"),
    "cufft": ("libcufft.so.12", r"cufft[A-Z]"),
    "curand": ("libcurand.so.10", r"curand[A-Z]"),
    "cusolver": ("libcusolver.so.12", r"cusolver[A-Z]"),
    "cusparse": ("libcusparse.so.12", r"cusparse[A-Z]"),
    "cusparseLt": ("libcusparseLt.so.0", r"cusparseLt[A-Z]"),
}
# What comes back, by the words before the name in its declaration; the first that fits. `memory`: in
# memory of the caller's, which a stub cannot fill, so that there must be a function.
KINDS = (
    ("text", r"char\s*\*"),
    ("empty", r"\*"),
    ("status", r"Status(_t)?\b|cudaError_t|ncclResult_t|cufftResult|CUresult"),
    ("memory", r"cudaChannelFormatDesc"),
    ("real", r"\b(float|double|cuComplex|cuDoubleComplex)\b"),
    ("empty", r"\b(void|int|unsigned|size_t|long|char|ncclTeam_t)\b"),
)
UNDECLARED = "undeclared"  # by no header: taken for one that returns a status


def package_roots() -> list[Path]:
    """Return the folders of NVIDIA's packages."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(root) for root in (spec.submodule_search_locations if spec else None) or []]


def installed(lib: str) -> list[Path]:
    """Return the library's files in the installed packages."""
    pattern = LIBRARIES[lib][0]
    return sorted(file for root in package_roots() for file in root.glob(f"*/lib/{pattern}"))


def exported_names(lib: str, files: list[Path]) -> set[str]:
    """Return the functions that the files export under the library's names."""
    wanted = re.compile(f"({LIBRARIES[lib][1]})\\w*")
    return {name for file in files for name in all_functions(file) if wanted.fullmatch(name)}


def all_functions(file: Path) -> set[str]:
    """Return the functions that a library exports."""
    command = ["nm", "-D", "--defined-only", str(file)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in listing.splitlines()]
    return {name.partition("@")[0] for _, kind, name in lines if kind in "TWi"}


def declarations() -> str:
    """Return the text of all headers, without comments and directives."""
    texts = []
    for root in package_roots():
        folders = ("*/include/*.h", "*/include/nccl_device/*.h")
        for header in sorted(file for folder in folders for file in root.glob(folder)):
            text = header.read_text(errors="replace")
            text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
            texts.append(re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", ";", text, flags=re.MULTILINE))
    return ";".join(texts)


def kinds_of_declared(text: str) -> dict[str, str]:
    """Return how every function that the text declares returns what it does."""
    kinds: dict[str, str] = {}
    for statement in re.split(r"[;{}]", text):
        found = re.search(r"\b(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", statement))
        words = statement[: statement.index(found[1])] if found else ""
        kind = next((kind for kind, pattern in KINDS if re.search(pattern, words)), None)
        if found and kind:
            kinds.setdefault(found[1], kind)
    return kinds


def kind_of(name: str, kinds: dict[str, str]) -> str:
    """Return the kind of a function, or that no header declares it."""
    plain = re.sub(r"_pt[sd][sz]$", "", name.removeprefix("p") if name[:5] == "pnccl" else name)
    return kinds.get(name) or kinds.get(plain) or UNDECLARED


def read(folder: Path) -> dict[str, dict[str, str]]:
    """Return library -> name -> kind, as checked in."""
    lists = {}
    for path in sorted(folder.glob("*.txt")):
        lines = [line.split() for line in path.read_text().splitlines() if line[:1] != "#"]
        lists[path.stem] = {words[0]: (*words[1:], "status")[0] for words in lines}
    return lists


def update() -> None:
    """Rewrite the lists."""
    declared = kinds_of_declared(declarations())
    FOLDER.mkdir(exist_ok=True)
    known = read(FOLDER)
    for lib in LIBRARIES:
        if not installed(lib):
            raise SystemExit(
                f"vendor_exports: [{LIBRARIES[lib][0]}] is in no package of this Python"
            )
        names = exported_names(lib, installed(lib))
        kinds = known.get(lib, {}) | {name: kind_of(name, declared) for name in names}
        write(lib, "update", kinds)


def add(lib: str, files: list[Path]) -> None:
    """Add the names in `files` to a list, such as those of another version of the library."""
    known, declared = read(FOLDER).get(lib, {}), kinds_of_declared(declarations())
    wanted = re.compile(f"({LIBRARIES[lib][1] if lib in LIBRARIES else f'{lib}[A-Z]'})\\w*")
    kinds: dict[str, str] = {}
    for file in files:
        if file.suffix == ".py":
            kinds |= dict.fromkeys(re.findall(rf"\b{lib}[A-Z]\w+", file.read_text()), "status")
        else:
            names = [name for name in all_functions(file) if wanted.fullmatch(name)]
            kinds |= {name: kind_of(name, declared) for name in names}
    write(lib, "add", kinds | known)


def write(lib: str, option: str, kinds: dict[str, str]) -> None:
    """Write a list."""
    lines = [f"# Rewritten by tools/gen/vendor_exports.py --{option}."]
    lines += [f"{n} {k}" if k != "status" else n for n, k in sorted(kinds.items())]
    (FOLDER / f"{lib}.txt").write_text("\n".join(lines) + "\n")


def missing() -> dict[str, list[str]]:
    """Return what installed libraries export and the lists lack."""
    known = read(FOLDER)
    found = {
        lib: exported_names(lib, installed(lib)) - set(known.get(lib, {})) for lib in LIBRARIES
    }
    return {lib: sorted(names) for lib, names in found.items() if names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--add", nargs="+", metavar="LIB FILE")
    args = parser.parse_args()
    if args.add:
        add(args.add[0], [Path(file) for file in args.add[1:]])
    elif args.update:
        update()
    elif lacking := missing():
        sys.exit(f"vendor_exports: not listed: {lacking}; run vendor_exports.py --update")


if __name__ == "__main__":
    main()
