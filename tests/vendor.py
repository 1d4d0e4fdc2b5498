"""The soft GPU's libraries under the vendor's names, so that `--gpus 0` runs without a GPU.

Everything between the program and the driver is then what runs on a real one: the server loads
libcuda, libcudart, libcublas and libcublasLt by name, and knows nothing of a soft GPU.
"""

from __future__ import annotations

from pathlib import Path

from pyft._native import native_dir

NAMES = ("libcuda.so.1", "libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13")


def environment(folder: Path, gpus: int = 1) -> dict[str, str]:
    """Return the environment in which a driver finds so many GPUs; makes the folder."""
    folder.mkdir(exist_ok=True)
    files = dict.fromkeys(NAMES, "libsoftgpu.so") | {"libnvidia-ml.so.1": "libsoftgpu_nvml.so"}
    for name, file in files.items():
        if not (folder / name).exists():
            (folder / name).symlink_to(native_dir() / file)
    return {
        "LD_LIBRARY_PATH": str(folder),  # NVML, for the agent
        "PYFT_CUDA_LIBRARIES": str(folder),
        "SOFTGPU_DEVICES": str(gpus),
    }
