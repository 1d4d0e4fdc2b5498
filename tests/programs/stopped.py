"""Programs that do not run, and what stops each. One that runs, or stops elsewhere, is a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from matrix import VLLM

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
    options: tuple[str, ...] = ()  # more of `pyft run`


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
        "vllm-v2",
        "vLLM's V2 model runner, after a fault",
        ("vllm_generate.py",),
        r"gives page-locked memory to a kernel[\s\S]*two replays agree that this was wrong",
        "its kernels read page-locked memory that the CPU writes meanwhile. No log has what was "
        "there, so a replay comes to other values; pyft notices that and ends the job. Without a "
        "fault it runs. The V1 model runner copies instead.",
        ("vllm",),
        "requirements-vllm.txt",
        settings={**VLLM, "VLLM_USE_V2_MODEL_RUNNER": "1"},
        options=("--inject", "server-kill,rank=0,call=1000"),
    ),
)
