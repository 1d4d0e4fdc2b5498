"""`pyft demo`: the same small training with and without a lost GPU, and what that changes."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

import pyft
from pyft.cli import doctor
from pyft.errors import PyftError, UsageError

SCRIPT = Path(pyft.__file__).parent / "torch_support" / "demo_train.py"
BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 60
PAGE = "demo.html"
_LOSS = re.compile(r"^step=\d+ loss=(\S+)$", re.MULTILINE)


def demo(
    steps: Annotated[int, typer.Option(min=4, max=1000, help="Steps of the training.")] = 24,
    html: Annotated[
        Path | None, typer.Option(help="Write the page there; default: into the job's folder.")
    ] = None,
) -> None:
    """Train a small network twice, lose a GPU in the second run, and compare every bit.

    It needs PyTorch, and neither a GPU nor data. It takes less than a minute.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"pyft demo needs PyTorch: {doctor.INSTALL_TORCH}")
    print(f"1  a training of {steps} steps on one soft GPU", flush=True)
    plain = _train(steps)
    print(f"   {curve(plain.stdout)}")
    step = steps // 3  # early: pyft's agent, which lets it happen, may be late on a busy machine
    fault = f"gpu-lost,rank=0,step={step}"
    print(f"2  the same, and after step {step} its GPU is lost (--inject {fault})", flush=True)
    lost = _train(steps, spares=1, inject=fault)
    print(f"   {curve(lost.stdout)}")
    for one in lost.faults:
        print(
            f"   rank {one.rank} stood still for {one.seconds:.2f} s and went on with GPU "
            f"{one.gpu_to}: {one.outcome}, replay {one.verdict}"
        )
    print("\n".join(compare(plain, lost)))
    page = html or lost.folder / PAGE
    try:
        page.write_text(lost.html(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the page [{page}] cannot be written: {error.strerror}") from None
    print(f"4  what happened when, to be opened in a browser: {page.resolve()}")
    print("\nNow your own: pyft run --gpus soft:1 --spares 1 -- python train.py")


def compare(plain: pyft.Result, lost: pyft.Result) -> list[str]:
    """Return what is to be said of two runs; PyftError when they are not what they should be."""
    if [one.outcome for one in lost.faults] != ["recovered"]:
        raise PyftError(f"the lost GPU was not replaced: {lost.faults}")
    if plain.stdout != lost.stdout:
        raise PyftError("the run that lost a GPU differs from the other one: report this, please")
    losses = len(_LOSS.findall(plain.stdout))
    return [f"3  the same bits in both runs: {losses} losses, and a hash of all parameters"]


def curve(output: str) -> str:
    """Return the losses as bars, from the least to the largest, with the ends in numbers."""
    losses = [float(one) for one in _LOSS.findall(output)]
    if not losses:
        return "no losses"
    count = min(len(losses), MOST_BARS)
    shown = [losses[number * len(losses) // count] for number in range(count)]
    least, span = min(shown), (max(shown) - min(shown)) or 1.0
    bars = "".join(BARS[round((one - least) / span * (len(BARS) - 1))] for one in shown)
    return f"loss {losses[0]:.4f} {bars} {losses[-1]:.4f}"


def _train(steps: int, spares: int = 0, inject: str = "") -> pyft.Result:
    return pyft.run(
        [sys.executable, SCRIPT, str(steps)],
        gpus="soft:1",
        spares=spares,
        inject=[inject] if inject else [],
        quiet=True,
    )
