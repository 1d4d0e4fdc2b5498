"""pyft runs an unmodified PyTorch CUDA script against a server process that owns the GPU.

    import pyft

    result = pyft.run(["torchrun", "--nproc-per-node", "2", "train.py"], gpus="soft:2", spares=1,
                      inject="gpu-lost,rank=1,step=5")
    print(result.faults)

`pyft.status()` returns the jobs that run, `pyft.faults()` what has happened to one, and
`pyft.inject("gpu-lost", rank=1)` lets a fault happen. docs/operate/python.md has more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyft.api.run import JobError, Result, run
    from pyft.api.state import Fault, JobStatus, faults, inject, status
    from pyft.errors import PyftError

__version__ = "0.1.0"
__all__ = [
    "Fault",
    "JobError",
    "JobStatus",
    "PyftError",
    "Result",
    "faults",
    "inject",
    "run",
    "status",
]
_HOMES = {
    **dict.fromkeys(("JobError", "Result", "run"), "pyft.api.run"),
    **dict.fromkeys(("Fault", "JobStatus", "faults", "inject", "status"), "pyft.api.state"),
    "PyftError": "pyft.errors",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for at its first use: pyft's own processes import much less."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pyft' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
