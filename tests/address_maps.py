"""Where Linux puts what a process has, on x86-64 with 47 bits: arch/x86/mm/mmap.c and fs/binfmt_elf.c.

A map is a list of ranges. What counts are the bits that are random (vm.mmap_rnd_bits, 28 by default
and 32 in some distributions) and the limit of the stack, below which the kernel maps downwards. It
maps upwards from a third of all addresses where vm.legacy_va_layout is set, and kernels before 4.19 do
that without a limit as well. Nothing of it needs personality(), which Docker's default seccomp forbids.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

PAGE = 1 << 12
TASK_SIZE = (1 << 47) - PAGE
STACK_RANDOM = 0x3FFFFF * PAGE  # STACK_RND_MASK
GUARD_GAP = 256 * PAGE
LEAST_GAP, MOST_GAP = 128 << 20, TASK_SIZE // 6 * 5
PIE_BASE = TASK_SIZE // 3 * 2
UPWARDS_BASE = TASK_SIZE // 3
BRK_RANDOM = 1 << 30
GIB, TIB = 1 << 30, 1 << 40


@dataclass(frozen=True)
class Kind:
    """A machine and a program: how it is started, and how much it maps."""

    random_bits: int = 32
    stack_limit: int | None = 8 << 20  # None: `ulimit -s unlimited`, as under Slurm
    pie: bool = True
    upwards: bool = False
    heap: int = 64 * GIB
    mapped: int = 4 * TIB  # libraries, threads' stacks, stores, buffers of data loaders


KINDS = [
    Kind(bits, stack, pie, upwards)
    for bits in (28, 32)
    for stack, upwards in ((8 << 20, False), (TIB, False), (None, False), (None, True))
    for pie in (True, False)
]


def mapped(kind: Kind, draw: random.Random) -> list[tuple[int, int]]:
    """Return the ranges of one process: program and heap, what is mapped, stack."""
    shift = draw.getrandbits(kind.random_bits) * PAGE
    stack_top = TASK_SIZE - draw.randrange(0, STACK_RANDOM + 1, PAGE)
    ranges = [(stack_top - min(kind.stack_limit or 8 << 20, 64 * GIB), stack_top)]
    program = PIE_BASE + draw.getrandbits(kind.random_bits) * PAGE if kind.pie else 0x400000
    heap = program + GIB + draw.randrange(0, BRK_RANDOM, PAGE)
    ranges.append((program, heap + kind.heap))
    if kind.upwards:
        ranges.append((UPWARDS_BASE + shift, UPWARDS_BASE + shift + kind.mapped))
        return ranges
    top = highest(kind.stack_limit) - shift
    ranges.append((max(top - kind.mapped, PAGE), top))
    return ranges


def highest(stack_limit: int | None) -> int:
    """Return where the kernel begins to map downwards, before it takes off what is random."""
    gap = MOST_GAP if stack_limit is None else stack_limit + STACK_RANDOM + GUARD_GAP
    return TASK_SIZE - min(max(gap, LEAST_GAP), MOST_GAP)


def meets(ranges: list[tuple[int, int]], start: int, end: int) -> bool:
    """Does one of the ranges have an address of these?"""
    return any(low < end and start < high for low, high in ranges)
