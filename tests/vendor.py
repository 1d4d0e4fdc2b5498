"""The soft GPU's libraries under the vendor's names, so that `--gpus 0` runs without a GPU.

Everything between the program and the driver is then what runs on a real one: the server loads
libcuda, libcudart, libcublas and libcublasLt by name, and knows nothing of a soft GPU.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from pyft._native import cuda_releases, native_dir

# Beside them: what the soft GPU's library needs, which the loader looks for there.
BESIDE = ("libsoftgpu_exec.so", "glibc-hwcaps")
LIBRARIES = ("cuda", "cudart", "cublas", "cublasLt")


def environment(folder: Path, gpus: int = 1, release: int = 13) -> dict[str, str]:
    """Return the environment in which a driver finds so many GPUs; makes the folder.

    `release`: the CUDA whose libraries these are, by their names.
    """
    folder.mkdir(exist_ok=True)
    names = (cuda_releases.LIBRARIES[release][library] for library in LIBRARIES)
    files = dict.fromkeys(names, "libsoftgpu.so") | {"libnvidia-ml.so.1": "libsoftgpu_nvml.so"}
    files |= dict(zip(BESIDE, BESIDE, strict=True))
    for name, file in files.items():
        if not (folder / name).exists():
            (folder / name).symlink_to(native_dir() / file)
    return {
        "LD_LIBRARY_PATH": str(folder),  # NVML, for the agent
        "PYFT_CUDA_LIBRARIES": str(folder),
        "PYFT_CUDA_RELEASE": str(release),
        "SOFTGPU_DEVICES": str(gpus),
    }


def without(folder: Path, *functions: str) -> None:
    """Let the libraries in the folder of `environment` lack functions, as an older driver does."""
    data = (native_dir() / "libsoftgpu.so").read_bytes()
    for function in functions:
        name = f"\0{function}\0".encode()
        assert name in data, function
        data = data.replace(name, name[:-2] + b"?\0")
    older = folder / "libsoftgpu-older.so"
    older.write_bytes(data)
    for link in folder.iterdir():
        if link.is_symlink() and link.resolve().name == "libsoftgpu.so":
            link.unlink()
            link.symlink_to(older)


def build_nccl(folder: Path) -> dict[str, str]:
    """Build a libnccl.so.2 for the driver of `environment`; return what the servers need for it.

    It has NCCL's functions and no others. What they do is flexccl's work, as it does it where
    aborts leave partial results.
    """
    if platform.machine() != "x86_64":
        pytest.skip("[x86-64]: its functions are jumps of that")
    compiler = shutil.which("c++") or pytest.skip("[compiler]: no C++ compiler")
    (folder / "driver").mkdir(exist_ok=True)
    library = folder / "driver" / "libnccl.so.2"
    source = Path(__file__).with_name("vendor_nccl.cc")
    headers = Path(__file__).parents[1] / "flexccl" / "include"
    command = [compiler, "-shared", "-fPIC", f"-I{headers}", "-o", library, source]
    subprocess.run(command, check=True)
    return {"NCCL_IMITATION_LIBRARIES": str(native_dir())}
