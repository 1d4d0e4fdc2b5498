"""What belongs together: NVIDIA's drivers, releases of CUDA, and files of CUDA's libraries."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

DRIVER_VERSION = Path("/proc/driver/nvidia/version")

# Branch of a driver -> the CUDA that it is for. 535, 550 and 555 have said so themselves
# (cuDriverGetVersion), the others are from NVIDIA's release notes.
CUDA_OF_DRIVER = {
    525: (12, 0),
    530: (12, 1),
    535: (12, 2),
    545: (12, 3),
    550: (12, 4),
    555: (12, 5),
    560: (12, 6),
    565: (12, 7),
    570: (12, 8),
    575: (12, 9),
    580: (13, 0),
}
# The first branch that runs programs of a release, whatever its second number.
OLDEST_DRIVER = {12: 525, 13: 580}

# Library -> its file, by the first number of a release.
LIBRARIES = {
    12: {
        "cudart": "libcudart.so.12",
        "cuda": "libcuda.so.1",
        "cublas": "libcublas.so.12",
        "cublasLt": "libcublasLt.so.12",
        "nccl": "libnccl.so.2",
        "cudnn": "libcudnn.so.9",
        "cufft": "libcufft.so.11",
        "curand": "libcurand.so.10",
        "cusolver": "libcusolver.so.11",
        "cusparse": "libcusparse.so.12",
    },
    13: {
        "cudart": "libcudart.so.13",
        "cuda": "libcuda.so.1",
        "cublas": "libcublas.so.13",
        "cublasLt": "libcublasLt.so.13",
        "nccl": "libnccl.so.2",
        "cudnn": "libcudnn.so.9",
        "cufft": "libcufft.so.12",
        "curand": "libcurand.so.10",
        "cusolver": "libcusolver.so.12",
        "cusparse": "libcusparse.so.12",
    },
}


def driver_branch() -> int | None:
    """Return the first number of the installed driver's version; None without a driver."""
    try:
        text = DRIVER_VERSION.read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module(?: for \w+)?\s+(\d+)\.\d+", text)
    return int(found[1]) if found else None


def cuda_of_driver(branch: int) -> tuple[int, int]:
    """Return the CUDA that a driver is for; of one that is not listed, that of the one before."""
    return max((cuda for known, cuda in CUDA_OF_DRIVER.items() if known <= branch), default=(11, 0))


def cuda_of_torch() -> tuple[int, int] | None:
    """Return the CUDA that the installed PyTorch is built with, by what it requires."""
    try:
        required = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return None
    pattern = re.compile(
        r"(?:cuda-toolkit(?:\[[^]]*\])?|nvidia-cuda-runtime-cu\d+) *== *(\d+)\.(\d+)"
    )
    found = next(filter(None, map(pattern.match, required)), None)
    return (int(found[1]), int(found[2])) if found else None


def release_of_torch() -> int:
    """Return the CUDA whose libraries servers load on real GPUs: PyTorch's, if it is a known one."""
    torch = cuda_of_torch()
    return torch[0] if torch and torch[0] in LIBRARIES else max(LIBRARIES)


def mismatch(branch: int, torch: tuple[int, int]) -> str:
    """Return why PyTorch does not run by way of pyft on that driver; nothing if it does."""
    has, built = (f"{a}.{b}" for a, b in (cuda_of_driver(branch), torch))
    driver = f"driver {branch} is for CUDA [{has}]"
    oldest = OLDEST_DRIVER.get(torch[0])
    if not oldest:
        known = " or ".join(map(str, LIBRARIES))
        return f"PyTorch is built with CUDA [{built}]: on real GPUs pyft needs one of CUDA {known}"
    if branch < oldest:
        return f"{driver}, PyTorch is built with [{built}]: install driver {oldest} or newer"
    return ""
