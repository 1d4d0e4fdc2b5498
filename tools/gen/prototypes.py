"""Prototypes of the API, taken from the vendor's headers: the facts beside the records' judgements.

    prototypes.py NAME...     add what the installed headers declare of these functions
    prototypes.py --update    rewrite proxy/api/prototypes/*.txt from the installed headers
    prototypes.py             say what the installed headers declare otherwise

A machine that builds need not have cuDNN's, cuFFT's, cuRAND's, cuSOLVER's and cuSPARSE's headers, so
the prototypes are checked in, a line each. The compiler compares them with the headers it does have
(emit_client.py, emit_library.py), and tests/gen/api/test_prototypes.py with all that are installed.
The file a prototype lies in is the library whose call it is.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import api_files
from vendor_exports import package_roots

FOLDER = Path(__file__).parents[2] / "proxy" / "api" / "prototypes"
# Library -> (headers, how its functions begin). The first library whose beginning fits has a function.
LIBRARIES = {
    "cublasLt": (("cublasLt.h",), "cublasLt"),
    "cublas": (("cublas_v2.h",), "cublas"),
    "cudart": (("cuda_runtime_api.h", "cuda_profiler_api.h"), "cuda"),
    "cudnn": (("cudnn.h",), "cudnn"),
    "cufft": (("cufft.h", "cufftXt.h"), "cufft"),
    "curand": (("curand.h",), "curand"),
    "cusolver": (("cusolverDn.h", "cusolverSp.h"), "cusolver"),
    "cusparse": (("cusparse.h",), "cusparse"),
    "cupti": (("cupti.h",), "cupti"),
    "nccl": (("nccl.h",), "nccl"),
    "nvml": (("nvml.h",), "nvml"),
    "cuda": (("cuda.h", "cudaProfiler.h"), "cu"),
}
HEAD = "# Taken from the vendor's headers by tools/gen/prototypes.py.\n"


def library_of(name: str) -> str:
    """Return the library that a function belongs to; nothing if to none."""
    return next((lib for lib, (_, start) in LIBRARIES.items() if name.startswith(start)), "")


def preprocessed(headers: Iterable[str]) -> str:
    """Return what the compiler makes of those of the headers that are installed."""
    folders = [folder for root in package_roots() for folder in sorted(root.glob("*/include"))]
    here = [h for h in headers if any((folder / h).is_file() for folder in folders)]
    if not here:
        return ""
    command = ["cc", "-E", "-P", "-xc", *(f"-I{folder}" for folder in folders), "-"]
    text = "#include <stddef.h>\n" + "".join(f"#include <{h}>\n" for h in here)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout


def plain(text: str) -> str:
    """Return a declaration without attributes and needless spaces; arrays are pointers."""
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    text = re.sub(r"\b(extern|__inline__|__restrict__?|restrict)\b", " ", text)
    text = re.sub(r"\s+", " ", text).strip().replace("long long int", "long long")
    text = re.sub(r"\s*([(),\[\]*])\s*", r"\1", text).replace("(void)", "()")
    text = re.sub(r"(\w+)\[\d*\]", r"*\1", text).replace(" *", "*")
    return re.sub(r"(?<!\*)\*", " *", text).replace(",", ", ").replace("*const*", "*const *")


def declared(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the prototype of each function that preprocessed text declares."""
    for statement in text.split(";"):
        if "{" in statement or "typedef" in statement:
            statement = statement.rpartition("}")[2]
        prototype = plain(statement)
        if found := re.fullmatch(r"[\w *]*?\b(\w+)\(.*\)", prototype):
            yield found[1], prototype


def of_headers() -> dict[str, dict[str, str]]:
    """Return library -> name -> prototype, of the libraries whose headers are installed."""
    found: dict[str, dict[str, str]] = {}
    for lib, (headers, _) in LIBRARIES.items():
        if text := preprocessed(headers):
            found[lib] = {n: p for n, p in declared(text) if library_of(n) == lib}
    return found


def known() -> dict[str, dict[str, str]]:
    """Return library -> name -> prototype, as checked in."""
    found: dict[str, dict[str, str]] = {}
    for name, (lib, prototype) in api_files.prototypes(FOLDER).items():
        found.setdefault(lib, {})[name] = prototype
    return found


def differences() -> list[str]:
    """Return a sentence for each prototype that the installed headers declare otherwise."""
    headers = of_headers()
    return [
        f"{lib}.txt: [{prototype}] is declared as [{headers[lib][name]}]"
        for lib, prototypes in known().items()
        for name, prototype in prototypes.items()
        if headers.get(lib, {}).get(name, prototype) != prototype
    ]


def write(wanted: Iterable[str]) -> None:
    """Rewrite the files: what they have, and these functions, as the headers declare them."""
    headers, found = of_headers(), known()
    for name in wanted:
        lib = library_of(name)
        if name not in headers.get(lib, {}):
            sys.exit(f"prototypes: no installed header declares [{name}]: write it into {lib}.txt")
        found.setdefault(lib, {})[name] = headers[lib][name]
    for lib, prototypes in found.items():
        now = prototypes | {n: p for n, p in headers.get(lib, {}).items() if n in prototypes}
        text = "".join(f"{now[name]}\n" for name in sorted(now))
        (FOLDER / f"{lib}.txt").write_text(HEAD + text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.names or args.update:
        write(args.names)
    elif found := differences():
        sys.exit("\n".join([*found, "run tools/gen/prototypes.py --update"]))


if __name__ == "__main__":
    main()
