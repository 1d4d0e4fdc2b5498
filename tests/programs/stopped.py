"""Programs that do not run, and what stops each. One that runs, or stops elsewhere, is a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

INTRODUCTION = """\
Each of these is tried by `make test-programs` as well, with servers.
If it stops at another place, or runs, the test fails."""


@dataclass(frozen=True)
class Stopped:
    """One of them."""

    name: str
    text: str  # for people
    words: tuple[str, ...]  # script of src/ and its arguments
    says: str  # a pattern of what it says when it stops
    why: str  # for people
    packages: tuple[str, ...]
    pins: str = "requirements.txt"  # a file of packages of its own gets an environment of its own
    settings: Mapping[str, str] = field(default_factory=dict)


STOPPED = (
    Stopped(
        "jax",
        "JAX",
        ("jax_steps.py",),
        r"\[cuGetExportTable\] is not supported[\s\S]*no supported devices found for platform CUDA",
        "XLA's plugin has a CUDA runtime of its own inside, linked statically. That asks the driver "
        "for tables without documentation (`cuGetExportTable`), which neither pyft nor the soft GPU "
        "has. Before that JAX looks for `/dev/nvidia0`, which the script does away with.",
        ("jax", "jax-cuda13-plugin"),
        "requirements-jax.txt",
    ),
    Stopped(
        "vllm",
        "vLLM",
        ("vllm_generate.py",),
        r"NVMLError_NotSupported",
        "it asks NVML for the compute capability, which the NVML of a job with servers does not "
        "answer for soft GPUs. With `--direct` it loads the model; no word came within five minutes.",
        ("vllm",),
        "requirements-vllm.txt",
        settings={
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        },
    ),
)
