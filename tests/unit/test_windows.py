"""The windows of devices lie where no process has anything, whatever the kernel's settings are."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import address_maps
import pytest

from pyft.cli import doctor
from pyft.wire import layout

ROOT = Path(__file__).resolve().parents[2]
STARTS, RANKS = 10_000, 8


def soft_gpu(name: str) -> int:
    """Return where the soft GPU has its memory, in a build without sanitizers."""
    text = (ROOT / "softgpu" / "core" / "windows.h").read_text().partition("#else")[2]
    found = re.search(rf"{name} = (0x[0-9a-f']+);", text)
    assert found is not None
    return int(found[1].replace("'", ""), 16)


def windows() -> list[tuple[int, int]]:
    """Return all that client, server and soft GPU map at fixed addresses, of all devices."""
    devices = (layout.DEVICE_WINDOW_BASE, doctor.DEVICES * layout.DEVICE_WINDOW_BYTES)
    pinned = (layout.PINNED_WINDOW_BASE, doctor.DEVICES * layout.PINNED_STRIDE)
    modules = (soft_gpu("kAuxiliaryBase"), doctor.DEVICES * (1 << 36))
    return [(base, base + size) for base, size in (devices, pinned, modules)]


def starts_that_fail(kinds: list[address_maps.Kind], starts: int) -> int:
    """Start jobs on machines of these kinds in turn, and count those of which a rank has no room."""
    draw, taken = random.Random(20261124), windows()
    failed = 0
    for start in range(starts):
        kind = kinds[start % len(kinds)]
        ranks = (address_maps.mapped(kind, draw) for _ in range(RANKS))
        failed += any(address_maps.meets(ranges, *one) for ranges in ranks for one in taken)
    return failed


def test_ten_thousand_starts_leave_the_windows_free() -> None:
    assert starts_that_fail(address_maps.KINDS, STARTS) == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", address_maps.KINDS, ids=str)
def test_so_do_as_many_of_each_kind(kind: address_maps.Kind) -> None:
    assert starts_that_fail([kind], STARTS) == 0


def share_of_processes(kind: address_maps.Kind, start: int, end: int) -> float:
    """Return how many of them have something between two addresses."""
    draw = random.Random(1)
    found = (address_maps.meets(address_maps.mapped(kind, draw), start, end) for _ in range(2000))
    return sum(found) / 2000


@pytest.mark.parametrize(
    ("place", "kind", "least", "most"),
    [
        # Where the first window was before: one process in 16 lay there.
        (0x7000_0000_0000, address_maps.Kind(32, mapped=address_maps.GIB), 0.05, 0.08),
        # Free only as long as the stack has a limit.
        (0x1000_0000_0000, address_maps.Kind(32, mapped=address_maps.GIB), 0, 0),
        (0x1000_0000_0000, address_maps.Kind(32, None, mapped=address_maps.GIB), 0.05, 0.08),
        (0x3000_0000_0000, address_maps.Kind(32, None, upwards=True), 0.2, 0.4),
        (0x6000_0000_0000, address_maps.Kind(32), 0.05, 0.08),
    ],
)
def test_the_simulation_finds_what_lies_in_the_way(
    place: int, kind: address_maps.Kind, least: float, most: float
) -> None:
    assert least <= share_of_processes(kind, place, place + address_maps.TIB) <= most


def test_windows_are_apart() -> None:
    ordered = sorted(windows())
    assert all(a[1] <= b[0] for a, b in zip(ordered, ordered[1:], strict=False))
    assert soft_gpu("kWindowBase") == layout.DEVICE_WINDOW_BASE
    assert ordered[0][0] > address_maps.highest(None)
    assert ordered[-1][1] < address_maps.UPWARDS_BASE


@pytest.mark.parametrize("stack", ["8192", "1048576", "unlimited"])
def test_this_kernel_keeps_the_rules(stack: str) -> None:
    """What real processes map lies where a map of the simulation can lie."""
    random_bytes = address_maps.PAGE << int(Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    limit = None if stack == "unlimited" else int(stack) << 10
    top, room = address_maps.highest(limit), 1 << 36  # what this small program maps at most
    places = [
        (0, 1 << 33),
        (address_maps.PIE_BASE, address_maps.PIE_BASE + random_bytes + room),
        (address_maps.UPWARDS_BASE, address_maps.UPWARDS_BASE + random_bytes + room),
        (top - random_bytes - room, top),
        (address_maps.TASK_SIZE - room, address_maps.TASK_SIZE + address_maps.PAGE),
    ]
    program = 'print(open("/proc/self/maps").read())'
    command = [
        "sh",
        "-c",
        f'ulimit -s {stack}; exec "$@"',
        "sh",
        sys.executable,
        "-S",
        "-c",
        program,
    ]
    for _ in range(5):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            if not line or "[vsyscall]" in line:
                continue
            start, end = (int(text, 16) for text in line.split()[0].split("-"))
            assert any(low <= start and end <= high for low, high in places), line
            assert not any(start < high and low < end for low, high in windows()), line
