"""The trainings that the sweep disturbs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
_EXAMPLES = _TESTS.parent / "examples"
_PROGRAMS = _TESTS / "e2e" / "programs"


@dataclass(frozen=True)
class Case:
    """One program, and on how many ranks it runs."""

    ranks: int
    program: str
    arguments: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    drifts: bool = False  # the program lets replicas differ, which is told apart by replays


def _example(ranks: int, script: str, *arguments: str) -> Case:
    return Case(ranks, str(_EXAMPLES / script), ("--steps", "{steps}", *arguments))


def _small(ranks: int, case: str, script: str = "recovery_cases.py", **settings: str) -> Case:
    return Case(ranks, str(_PROGRAMS / script), ("--case", case, "--steps", "{steps}"), settings)


_ONE = (
    "scaler", "ema", "shampoo", "two_optimizers", "lbfgs", "in_backward", "offload", "evaluation",
    "graph", "record_stream",
)  # fmt: skip
_TWO = ("accumulate", "scaler", "ema", "two_optimizers", "lbfgs", "in_backward", "collectives")
CASES = {
    "gpt-1": _example(1, "train_gpt.py"),
    "gpt-fp16-1": _example(1, "train_gpt.py", "--dtype", "fp16", "--dropout", "0.1"),
    "cnn-1": _example(1, "train_cnn.py"),
    "gpt": _example(2, "train_gpt.py"),
    "gpt-fp16": _example(2, "train_gpt.py", "--dtype", "fp16", "--dropout", "0.1"),
    "gpt-fsdp": _example(2, "train_gpt.py", "--parallel", "fsdp"),
    "t5": _example(2, "train_t5.py", "--dropout", "0.1"),
    "bert": _example(2, "train_bert.py"),
    "cnn": _example(2, "train_cnn.py"),
    "pipeline": _example(2, "train_pipeline.py"),
    "gpt-4": _example(4, "train_gpt.py"),
    "gpt-fsdp-4": _example(4, "train_gpt.py", "--parallel", "fsdp"),
    **{f"{case}-1": _small(1, case) for case in _ONE},
    **{case: _small(2, case) for case in _TWO},
    "post_local": Case(
        2,
        str(_PROGRAMS / "recovery_cases.py"),
        ("--case", "post_local", "--steps", "{steps}"),
        drifts=True,
    ),
    "save-1": _small(1, "save", "host_cases.py"),
    "timers-1": _small(1, "timers", "host_cases.py"),
    # The log is full again and again.
    "long-evaluation-1": _small(
        1, "evaluation", "host_cases.py", PYFT_RING_MB="1", PYFT_ARENA_MB="8"
    ),
    "lone-evaluation": _small(
        2, "lone_evaluation", "host_cases.py", PYFT_RING_MB="1", PYFT_ARENA_MB="8"
    ),
    "collectives-4": _small(4, "collectives"),
    "dp_tp": _small(4, "dp_tp", "parallel_cases.py"),
    "dp_pp": _small(4, "dp_pp", "parallel_cases.py"),
    "fsdp": _small(2, "fsdp", "parallel_cases.py"),
    "fsdp-4": _small(4, "fsdp", "parallel_cases.py"),
    "uneven": _small(2, "uneven", "parallel_cases.py"),
    "ahead": _small(2, "ahead", "parallel_cases.py"),
    "moe": _small(2, "moe", "parallel_cases.py"),
    "moe-4": _small(4, "moe", "parallel_cases.py"),
    "moe-8": _small(8, "moe", "parallel_cases.py"),
    "fsdp-8": _small(8, "fsdp", "parallel_cases.py"),
}
# With --rehearse, on a machine of two cores. Larger ones have them with eight ranks as well.
REHEARSED = ("gpt", "gpt-fsdp-4", "moe")
