"""Print where a build dependency lives: `find_deps.py cuda-include|library-include|library-path|nvrtc-lib|openblas-include|openblas-lib|zstd-lib|xxhash-lib`.

The CUDA headers come from the vendor's pip packages and the BLAS from scipy-openblas32, so that a
machine without a CUDA toolkit or -dev packages can build; what the packages lack comes from a
toolkit of the same version. libzstd.so.1 and libxxhash.so.0 are part
of every Debian and Ubuntu (dpkg and apt need them); only the run-time libraries are used.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import sys
from importlib import util as importlib_util
from pathlib import Path

# One of each package that the build needs: runtime, crt, cccl, cublas, cupti.
HEADERS = ("cuda.h", "crt/host_defines.h", "nv/target", "cublas_api.h", "cupti_activity.h")


TOOLKIT_VERSION = "13000"  # CUDA_VERSION of cuda.h


def cuda_include() -> str:
    """Return the folders of cuda.h, cublas_api.h and the others, those of packages first."""
    folders = _packaged_headers()
    for folder in folders:
        if all((folder / name).exists() for name in HEADERS):
            return str(folder)
    found: dict[str, Path] = {}
    for folder in [*folders, *_toolkit_headers()]:
        for name in HEADERS:
            if (folder / name).exists():
                found.setdefault(name, folder)
    missing = [name for name in HEADERS if name not in found]
    if not missing:
        return ":".join(dict.fromkeys(str(found[name]) for name in HEADERS))
    raise SystemExit(
        f"find_deps: no CUDA headers {missing}: "
        "install nvidia-cuda-runtime, nvidia-cuda-crt, nvidia-cuda-cccl, nvidia-cuda-cupti (13.0) "
        "and nvidia-cublas, "
        "or the CUDA toolkit 13.0"
    )


def _packaged_headers() -> list[Path]:
    spec = importlib_util.find_spec("nvidia")
    return [
        found
        for root in (spec.submodule_search_locations if spec else None) or []
        for found in sorted(Path(root).glob("cu1*/include"))
    ]


def _toolkit_headers() -> list[Path]:
    """Return the folders of a toolkit's headers, if it is of the version that we need."""
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    roots += [str(Path(nvcc).resolve().parents[1])] if nvcc else []
    roots += map(str, sorted(Path("/usr/local").glob("cuda-13*")))
    for root in roots:
        include = Path(root or "/nonexistent") / "include"
        header = include / "cuda.h"
        text = header.read_text(errors="replace") if header.exists() else ""
        version = re.search(r"#define CUDA_VERSION (\d+)", text)
        if version and version.group(1) == TOOLKIT_VERSION:
            return [include, include / "cccl", include.parent / "extras" / "CUPTI" / "include"]
    return []


def library_include() -> str:
    """Return the folders of the headers of cuDNN, cuFFT, cuRAND, cuSOLVER and cuSPARSE, or nothing.

    They come with PyTorch's wheel and are compared with our records; the build itself needs none.
    """
    folders: dict[str, Path] = {}
    spec = importlib_util.find_spec("nvidia")
    for root in spec.submodule_search_locations if spec else []:
        for name in ("cudnn.h", "cufftXt.h", "curand.h", "cusolverDn.h", "cusparse.h"):
            for found in sorted(Path(root).glob(f"*/include/{name}")):
                folders[name] = found.parent
    return ":".join(sorted({str(f) for f in folders.values()})) if len(folders) == 5 else ""


def library_path() -> str:
    """Return the folders of PyTorch's CUDA libraries as a search path, or nothing."""
    spec = importlib_util.find_spec("nvidia")
    folders = [
        found.parent
        for root in (spec.submodule_search_locations if spec else None) or []
        for name in ("libcudart.so.13", "libcudnn.so.9", "libnccl.so.2")
        for found in sorted(Path(root).glob(f"*/lib/{name}"))
    ]
    return ":".join(str(folder) for folder in folders)


def nvrtc_lib() -> str:
    """Return the compiler of kernels, PyTorch's or a toolkit's; nothing if there is none."""
    spec = importlib_util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations if spec else None) or []]
    packaged = [found for root in roots for found in sorted(root.glob("*/lib/libnvrtc.so.13"))]
    toolkits = [include.parent / "lib64" / "libnvrtc.so.13" for include in _toolkit_headers()]
    return next((str(found) for found in [*packaged, *toolkits] if found.exists()), "")


def openblas(kind: str) -> Path:
    """Return the include or lib folder of scipy-openblas32."""
    try:
        import scipy_openblas32 as blas
    except ImportError:
        raise SystemExit("find_deps: no BLAS: install scipy-openblas32") from None
    return Path(blas.get_include_dir() if kind == "include" else blas.get_lib_dir())


def run_time_library(name: str, file: str, package: str) -> Path:
    """Return the full path of a library that has no -dev package here."""
    name = ctypes.util.find_library(name) or file
    for folder in ("/lib", "/usr/lib", "/lib64", "/usr/lib64"):
        for found in sorted(Path(folder).glob(f"**/{name}")):
            return found
    raise SystemExit(f"find_deps: {file} not found: install the package {package}")


def main() -> None:
    what = sys.argv[1]
    if what == "cuda-include":
        print(cuda_include())
    elif what == "library-include":
        print(library_include())
    elif what == "library-path":
        print(library_path())
    elif what == "nvrtc-lib":
        print(nvrtc_lib())
    elif what.startswith("openblas-"):
        print(openblas(what.removeprefix("openblas-")))
    elif what == "zstd-lib":
        print(run_time_library("zstd", "libzstd.so.1", "libzstd1"))
    elif what == "xxhash-lib":
        print(run_time_library("xxhash", "libxxhash.so.0", "libxxhash0"))
    else:
        raise SystemExit(f"find_deps: unknown dependency [{what}]")


if __name__ == "__main__":
    main()
