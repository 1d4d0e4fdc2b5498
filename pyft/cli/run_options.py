"""The options of `pyft run`: what they may be, and what their help says."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from pyft.agent.job.options import DEFAULT_PROTECT
from pyft.agent.process import messages
from pyft.errors import NOT_INJECTED
from pyft.recovery.inject import KINDS


class Protect(str, enum.Enum):
    """What is kept outside the GPU, so that a fault can be repaired."""

    snapshot = "snapshot"
    jit = "jit"
    none = "none"


DEFAULT = Protect(DEFAULT_PROTECT)
_OLD_PROTECT = {"capture": Protect.snapshot}  # names of before, which hold for this version still


def _protect(text: str) -> Protect:
    """Return what a word of --protect means."""
    if text in _OLD_PROTECT:
        new = _OLD_PROTECT[text]
        messages.say(
            f"--protect [{text}] is called [{new.value}] now: this version still takes the old name"
        )
        return new
    try:
        return Protect(text)
    except ValueError:
        words = ", ".join(repr(one.value) for one in Protect)
        raise typer.BadParameter(f"{text!r} is not one of {words}.") from None


class OnNoSpare(str, enum.Enum):
    """What happens when a GPU is lost and there is no other one."""

    wait = "wait"
    fail = "fail"


class StandBy(str, enum.Enum):
    """For which GPUs a server stands by."""

    spares = "spares"
    all = "all"
    none = "none"


class Divergence(str, enum.Enum):
    """What a replay does that differs from what the program has been told."""

    strict = "strict"
    report = "report"


class Dmr(str, enum.Enum):
    """What is executed twice and compared: dual modular redundancy."""

    off = "off"
    checkpoint = "checkpoint"
    idle = "idle"
    full = "full"
    audit = "audit"


class DmrWhere(str, enum.Enum):
    """Where something is executed for the second time."""

    permuted = "permuted"
    same = "same"
    other = "other"


class Unsupported(str, enum.Enum):
    """What an unsupported call does."""

    warn = "warn"
    error = "error"


Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND...", help="The command, left untouched."),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        help="soft:N: N soft GPUs; auto: all GPUs of the driver; 0,1: those of nvidia-smi. "
        "Default: the variable PYFT_GPUS."
    ),
]
Direct = Annotated[bool, typer.Option("--direct", help="Soft GPUs inside the command: no servers.")]
Spares = Annotated[
    int, typer.Option(min=0, help="Further GPUs the command does not see, for replacements.")
]
ProtectOption = Annotated[
    Protect,
    typer.Option(
        parser=_protect,
        metavar="[snapshot|jit|none]",
        help="snapshot: faults are repaired; jit: as long as another rank has the same contents; "
        "none: they are the command's errors.",
    ),
]
Movable = Annotated[
    bool,
    typer.Option(
        "--movable",
        help="Dump the command's processes every now and then, so that a killed one is restored "
        "and the job goes on. Needs CRIU and root (pyft doctor says more).",
    ),
]
Flush = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="Write images to this folder, so that the job can be resumed when all of it is lost. "
        "Implies --movable. Repeatable: each folder gets a part, see --parity.",
    ),
]
Parity = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="With several --flush: how many of the folders may be lost. Default: 1.",
    ),
]
FlushEvery = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SECONDS",
        help="With --flush: least time between two; 0: each image. Default: 600.",
    ),
]
Resume = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="Go on with a job whose images --flush has written here, with its command and its "
        "options, and flush to there. Repeatable: all folders; a new one for each that is lost.",
    ),
]
Head = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT[,…]",
        help="This is one host of several, and `pyft head` is there. Implies --movable; needs "
        "PYFT_TOKEN, the same on each host.",
    ),
]
Place = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="With --head: which of the hosts' places this is (default: the number of Slurm's task).",
    ),
]
Address = Annotated[
    str,
    typer.Option(
        help="With --head: the IPv4 address at which the other hosts reach this one (default: that "
        "from which it reaches the head)."
    ),
]
HostName = Annotated[
    str,
    typer.Option(help="With --head: the name of this host (default: Slurm's, or the system's)."),
]
OnNoSpareOption = Annotated[
    OnNoSpare,
    typer.Option(help="A GPU is lost and no spare is left: wait for one, or fail."),
]
StandByOption = Annotated[
    StandBy,
    typer.Option(
        help="Servers that wait for a fault, started and on their GPU: one for each spare, "
        "for all GPUs (a context on each more), or none."
    ),
]
DivergenceOption = Annotated[
    Divergence | None,
    typer.Option(
        help="A replay differs from what the program was told: its calls return an error "
        "(strict, for soft GPUs), or it is reported (for GPUs)."
    ),
]
DmrOption = Annotated[
    Dmr,
    typer.Option(
        help="Dual modular redundancy. checkpoint: activation checkpointing executes products of "
        "the forward pass twice; both results are compared. full: all other products are executed "
        "again as well; idle: when the program waits, and some of them at its cost. audit: a spare "
        "GPU replays what each rank has done, before its snapshot counts (all: soft GPUs)."
    ),
]
DmrWhereOption = Annotated[
    DmrWhere | None,
    typer.Option(
        help="Where it is executed again. --dmr audit: on another GPU, which takes a spare (other, "
        "the default), or on the rank's own (same), which sees no permanent fault. --dmr idle, full: "
        "with blocks on other processors of the GPU (permuted, the default), or on the same."
    ),
]
DmrBudget = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="With --dmr idle: share of the time that second executions may take besides that in "
        "which the program waits.",
    ),
]
DmrMemory = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="With --dmr idle, full: share of the GPU's memory that second executions may take.",
    ),
]
Inject = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND,rank=R[,step=S][,call=C][,server=K][,seed=N]",
        help=f"Let a fault happen, for tests: {', '.join(KINDS)}. After step S (a cut, which "
        "follows each step of an optimizer; 0: the start), before its C-th call; without both: as "
        "soon as the server works. server=K: to the K-th server of the rank, which counts from "
        "where it starts (1: the first; 2: the one that replaces it after another fault). "
        f"Repeatable. One that does not happen is named at the end, with the reason, and makes "
        f"the exit code [{NOT_INJECTED}] when the command's is 0.",
    ),
]
MetricsPort = Annotated[
    int,
    typer.Option(min=0, max=65535, help="Port of /metrics on 127.0.0.1; 0: none."),
]
Spans = Annotated[
    bool,
    typer.Option(
        "--spans",
        help="Send a span of each recovery by OpenTelemetry (pip install 'pyft[otel]'). The variable "
        "OTEL_EXPORTER_OTLP_ENDPOINT says where to.",
    ),
]
UnsupportedOption = Annotated[
    Unsupported,
    typer.Option(help="A call pyft does not support: name it and go on, or stop the process."),
]
LogDir = Annotated[Path | None, typer.Option(help="Folder for traces and meta.json of this job.")]
Report = Annotated[Path | None, typer.Option(help="Write a summary of the job to this JSON file.")]
