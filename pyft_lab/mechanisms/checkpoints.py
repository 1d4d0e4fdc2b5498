"""Checkpoint files: whole or not there at all; the newest one that is whole counts."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

DIGITS = 16  # of its digest, in a checkpoint's name


def write_durably(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]


def write_checkpoint(folder: Path, packed: dict[str, Any]) -> None:
    """Write a checkpoint, whose name has its digest."""
    import torch

    buffer = io.BytesIO()
    torch.save(packed, buffer)
    data = buffer.getvalue()
    write_durably(folder / f"step-{packed['step']:06d}-{digest(data)}.pt", data)


def newest_whole(folder: Path) -> tuple[Path, bytes] | None:
    """Return the newest checkpoint whose content is what was written.

    That a file was synchronized and renamed does not prove it: disks lie.
    """
    for path in sorted(folder.glob("step-*.pt"), reverse=True):
        data = path.read_bytes()
        if path.stem.rpartition("-")[2] == digest(data):
            return path, data
        print(f"checkpoint [{path.name}] is not what was written: an older one is taken")
    return None


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Return the newest checkpoint that is whole."""
    import torch

    found = newest_whole(folder)
    return (
        torch.load(io.BytesIO(found[1]), weights_only=True, map_location="cpu") if found else None
    )


def copy_to_host(value: Any) -> Any:
    """Return a copy of nested dicts and lists with their tensors in host memory."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copy_to_host(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copy_to_host(part) for part in value)
    return value
