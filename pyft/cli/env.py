"""`pyft env`: the PYFT_* variables, and what a bug report needs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated

import typer

import pyft
from pyft import config
from pyft.agent.job import job_folder
from pyft.cli.doctor import CHECKS
from pyft.errors import PyftError
from pyft.report.history import state_of
from pyft.settings import SETTINGS

OURS = ("PYFT_", "SOFTGPU_", "FLEXCCL_")
OTHERS = ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
PACKAGES = ("torch", "triton", "numpy", "nvidia-nccl-cu13", "scipy-openblas32")


def env(
    bug_report: Annotated[
        bool,
        typer.Option("--bug-report", help="Print what to put into a bug report, in Markdown."),
    ] = False,
) -> None:
    """List every PYFT_* variable with its value and meaning."""
    if bug_report:
        print("\n".join(report_lines()))
        return
    for setting in SETTINGS:
        if not setting.internal:
            value = _shown(setting.name, config.get(setting.name))
            print(f"{setting.name}={value}  # {setting.help}")
    for sentence in config.warnings():
        print(f"warning: {sentence}")


def report_lines() -> Iterator[str]:
    """Yield the lines of a bug report: versions, this machine, settings, the last job."""
    yield "### Versions\n"
    yield f"* pyft {pyft.__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield f"* {', '.join(f'{name} {_version(name)}' for name in PACKAGES)}"
    yield "\n### `pyft doctor`\n"
    for check in CHECKS:
        found = check()
        yield f"* {found.status}: {found.need}: {found.text}"
    yield "\n### Variables that are set\n"
    names = [name for name in sorted(os.environ) if name.startswith(OURS) or name in OTHERS]
    values = [(name, _shown(name, os.environ[name])) for name in names]
    yield "\n".join(f"* `{name}={value}`" for name, value in values) or "none"
    yield "\n### The last job\n"
    yield from _last_job()
    yield "\n### What I did, what I saw, what I expected\n"


def _shown(name: str, value: object) -> object:
    """Return a value, but not the secret of a job: what is printed may be passed on."""
    return "..." if value and "TOKEN" in name else value


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _last_job() -> Iterator[str]:
    try:
        folders = job_folder.jobs()
    except PyftError as error:
        yield f"not known: {error}"
        return
    if not folders:
        yield "none"
        return
    meta = job_folder.read_meta(folders[-1])
    yield f"* {folders[-1].name}: {state_of(meta)}, GPUs {meta.get('gpus')}"
    yield f"* command: `{' '.join(map(str, meta.get('command', [])))}`"
    for fault in (meta.get("recovery") or {}).get("faults", []):
        yield f"* rank {fault.get('rank')}: {fault.get('fault')}, {fault.get('outcome')}"
        yield f"  evidence: {fault.get('evidence')}"
    yield f"* please attach: what `pyft report` prints, and the folder `{folders[-1]}`"
