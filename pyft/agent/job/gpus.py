"""Which GPUs a job has: `--gpus soft:N`, `auto`, or numbers as nvidia-smi shows them."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyft._native import cuda_releases
from pyft._native.driver import DriverError
from pyft._native.driver import gpus as driver_gpus
from pyft.errors import UsageError

MAX_DEVICES = 8  # softgpu::kMaxDevices; real ones are limited alike
NO_DRIVER = "no CUDA driver: use soft:N, as in --gpus soft:1"


@dataclass(frozen=True)
class Choice:
    """How many GPUs the program sees, and which real ones: UUIDs, those of the spares last."""

    count: int
    real: tuple[str, ...] = ()  # none: soft GPUs


def choose(
    text: str | None,
    spares: int = 0,
    driver: Callable[[], Sequence[str]] | None = None,
) -> Choice:
    """Return what `text` means on this machine; anything impossible is an error that names it."""
    if text is None:
        raise UsageError(
            "no GPU is chosen: say --gpus soft:N for N soft GPUs, as in soft:1, or set PYFT_GPUS"
        )
    if match := re.fullmatch(r"soft:(\d{1,2})", text):
        return Choice(_soft(text, int(match.group(1)), spares))
    if text != "auto" and not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text):
        raise UsageError(
            f"--gpus [{text}] cannot be used: say auto, or numbers of GPUs as in 0,1, or soft:N "
            "for N soft GPUs"
        )
    try:
        found = (driver or driver_gpus)()
    except DriverError as error:
        raise UsageError(f"--gpus [{text}]: {NO_DRIVER} ({error})") from None
    chosen = _automatic(found, spares) if text == "auto" else _numbered(text, found, spares)
    if len(chosen) > MAX_DEVICES:
        raise UsageError(f"--gpus [{text}] are [{len(chosen)}] GPUs: at most [{MAX_DEVICES}] work")
    return Choice(len(chosen) - spares, tuple(chosen))


def on_this_host(
    wanted: Sequence[str], driver: Callable[[], Sequence[str]] | None = None
) -> tuple[str, ...]:
    """Return the real GPUs of a place that goes on here: its own, or as many of another host.

    Raise UsageError where there are not so many.
    """
    names = list(dict.fromkeys(wanted))  # two numbers may mean one GPU
    if not names:
        return ()
    try:
        found = (driver or driver_gpus)()
    except DriverError as error:
        raise UsageError(f"the place works on GPUs, and here is no CUDA driver ({error})") from None
    if set(names) <= set(found):
        return tuple(wanted)
    here = _automatic(found, 0)
    if len(here) < len(names):
        raise UsageError(f"the place works on [{len(names)}] GPUs, and here are [{len(here)}]")
    taken = dict(zip(names, here, strict=False))
    return tuple(taken[name] for name in wanted)


def _soft(text: str, count: int, spares: int) -> int:
    if not 1 <= count <= MAX_DEVICES:
        raise UsageError(f"--gpus [{text}] is out of range: soft:1 to soft:{MAX_DEVICES} exist")
    if count + spares > MAX_DEVICES:
        raise UsageError(
            f"--spares [{spares}] is too many beside [{text}]: a node has {MAX_DEVICES} soft GPUs"
        )
    return count


def _automatic(found: Sequence[str], spares: int) -> list[str]:
    """Return all GPUs that CUDA_VISIBLE_DEVICES leaves, as the driver reads it."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = list(found)
    if listed is not None:
        chosen = []
        for name in listed.split(","):
            match = [found[int(name)]] if name.isdigit() and int(name) < len(found) else []
            match = match or [uuid for uuid in found if name and uuid.startswith(name)]
            if not match:
                break
            chosen.append(match[0])
    if len(chosen) <= spares:
        raise UsageError(f"--spares [{spares}] leaves none of the [{len(chosen)}] GPUs to use")
    return chosen


def _numbered(text: str, found: Sequence[str], spares: int) -> list[str]:
    numbers = [int(number) for number in text.split(",")]
    for number in numbers:
        if number >= len(found):
            raise UsageError(
                f"--gpus [{text}]: GPU [{number}] does not exist: the driver has [{len(found)}]"
            )
    others = [uuid for number, uuid in enumerate(found) if number not in numbers]
    if len(others) < spares:
        raise UsageError(
            f"--spares [{spares}] is too many beside [{text}]: the driver has [{len(found)}] GPUs"
        )
    return [*(found[number] for number in numbers), *others[:spares]]


def library_folders(release: int) -> list[str]:
    """Return where PyTorch's wheel keeps the libraries of a CUDA that a server loads."""
    files = cuda_releases.LIBRARIES[release]
    spec = importlib.util.find_spec("nvidia")
    return [
        str(found.parent)
        for root in (spec.submodule_search_locations if spec else None) or []
        for name in (files["cudart"], files["cudnn"], files["nccl"])
        for found in sorted(Path(root).glob(f"*/lib/{name}"))
    ]
