"""All-reduce of float32 sums, in place, of 2 and 4 processes: algbw = bytes / time."""

from __future__ import annotations

import ccl_libraries
import torch
from ccl_figures import size_name, spread, table
from ccl_pool import Meter, measure
from figures import Figure, met_in_words

from pyft import flexccl

SIZES = [1 << shift for shift in range(10, 27, 2)]
PROCESSES = (2, 4)
FAST_BYTES = 256 << 10  # from here on flexccl is to be twice as fast


def operations(size_bytes: int) -> int:
    """Return how many operations a block has: some milliseconds' worth."""
    return 10 if size_bytes <= 1 << 18 else 4 if size_bytes <= 1 << 22 else 1


def body(meter: Meter, libraries: list, rounds: int) -> None:
    torch.set_num_threads(1)
    for library in libraries:
        library.join(meter)
    for size_bytes in SIZES:
        data = torch.ones(size_bytes // 4)
        for library in libraries:
            data.fill_(meter.rank + 1.0)
            library.all_reduce(data)
            expected = meter.size * (meter.size + 1) / 2
            if not torch.all(data == expected):
                raise RuntimeError(f"{library.name}: a sum is not [{expected}]")
        for round_number in range(rounds):
            # Everybody goes first in turn.
            turn = round_number % len(libraries)
            for library in libraries[turn:] + libraries[:turn]:
                data.fill_(1.0)
                name = f"{size_bytes} {library.name}"
                meter.block(name, lambda: library.all_reduce(data), operations(size_bytes))  # noqa: B023
    for library in libraries:
        meter.together()
        library.leave()


def compared(size_bytes: int, ratios: list[float], processes: int) -> Figure:
    """Return the figure of a size, with the target that holds for it."""
    target = 2 if size_bytes >= FAST_BYTES else 1
    column = f"{processes} processes, shm / gloo"
    name = f"all-reduce of {size_name(size_bytes)}"
    return Figure(name, ratios, at_least=target, column=column)


def all_reduce_table(rounds: int) -> dict[str, list[Figure]]:
    """Measure and print; raises RuntimeError when a process fails or a sum is wrong."""
    figures = []
    for processes in PROCESSES:
        libraries = [
            ccl_libraries.Flexccl(flexccl.Transport.SHM),
            ccl_libraries.Gloo(),
            ccl_libraries.Flexccl(flexccl.Transport.TCP),
        ]
        seconds = measure(processes, lambda meter, us=libraries: body(meter, us, rounds))
        rows = []
        for size_bytes in SIZES:
            shm, gloo, tcp = (seconds[f"{size_bytes} {library.name}"] for library in libraries)
            ratios = [g / s for g, s in zip(gloo, shm, strict=True)]
            tcp_ratios = [g / t for g, t in zip(gloo, tcp, strict=True)]
            volume = size_bytes * operations(size_bytes) / 1e9
            speeds = [spread([volume / s for s in lib], 2) for lib in (shm, tcp, gloo)]
            figure = compared(size_bytes, ratios, processes)
            verdict = f"{figure.target()}: {met_in_words(figure)}"
            shown = [spread(ratios, 2), verdict, spread(tcp_ratios, 2)]
            rows.append([figure.name, *speeds, *shown])
            column = f"{processes} processes, TCP / gloo"
            figures += [figure, Figure(figure.name, tcp_ratios, column=column)]
        print(f"\nAll-reduce, {processes} processes, float32 sum in place, algbw in GB/s")
        head = ["size", "flexccl shm", "flexccl TCP", "gloo", "shm / gloo", "target", "TCP / gloo"]
        table(head, rows)
    return {"": figures}
