"""A matrix file, the cells it stands for, their faults and their keys."""

from __future__ import annotations

import difflib
import functools
import hashlib
import itertools
import json
import os
import platform
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata, resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyft_lab import mechanisms
from pyft_lab.api import AWAY, BACK, FAULTS, RESCALE, STORAGE, WITHOUT_GPU
from pyft_lab.errors import SpecError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = 2
BATCH = 16  # as in workloads/train.py
MOMENTS = ("boundary", "forward", "backward", "collective", "optimizer")
SUBSTRATES = ("cpu", "soft")
WORKLOADS = ("mlp", "gpt", "bert", "cnn", "wide")


@dataclass(frozen=True, order=True)
class Fault:
    """What happens to rank `rank` in step `step`, at a named point of it."""

    step: int
    rank: int
    moment: str
    kind: str


@dataclass(frozen=True)
class Cell:
    """One run. The reference has mechanism `none`, no checkpoints and no faults."""

    substrate: str
    workload: str
    mechanism: str
    ranks: int
    steps: int
    interval: int
    seed: int
    faults: tuple[Fault, ...]
    ranks_after: int = 0  # of attempts after the first; 0: as many

    @property
    def last_ranks(self) -> int:
        return self.ranks_after or self.ranks

    @property
    def mechanism_name(self) -> str:
        """Return the name to show: of a user's mechanism that of its class."""
        return self.mechanism.rpartition(":")[2]

    @property
    def name(self) -> str:
        if self.ranks_after:
            change = f"{self.ranks} to {self.ranks_after} ranks"
            how = "planned" if self.planned else self.mechanism_name
            return f"{how}, {change}, {self.workload}, seed {self.seed}"
        if self.planned:
            return f"absences by plan, {self.workload}, seed {self.seed}"
        if self == self.reference:
            return f"reference, {self.workload}, seed {self.seed}"
        kinds = ", ".join(sorted({fault.kind for fault in self.faults})) or "no fault"
        return f"{self.mechanism_name}, {self.workload}, {kinds}, seed {self.seed}"

    @property
    def reference(self) -> Cell:
        """Return what a run must equal, if it goes on with as many ranks."""
        if self.planned:
            return self
        plain = (self.substrate, self.workload, "none", self.ranks, self.steps)
        return Cell(*plain, interval=0, seed=self.seed, faults=())

    @property
    def planned(self) -> bool:
        return any(fault.kind in (RESCALE, AWAY, BACK) for fault in self.faults)

    def stopped_at(self, step: int) -> Cell:
        """Return what a run must equal that went on from that step with other ranks.

        Bits depend on their number. So it is a run that was stopped in order, at that step.
        """
        stop = Fault(step, 0, "boundary", RESCALE)
        return replace(self, mechanism="blocking", faults=(stop,))

    def without(self, spans: Sequence[tuple[int, int, int]]) -> Cell:
        """Return what a run must equal in which ranks were away: rank, from step, back at step."""
        if not spans:
            return self.reference
        events = [Fault(first, rank, "", AWAY) for rank, first, _ in spans]
        events += [Fault(back, rank, "", BACK) for rank, _, back in spans]
        return replace(self, mechanism="absences", interval=0, faults=tuple(sorted(events)))

    @property
    def key(self) -> str:
        """Return what names the cell's folder: all that its result depends on."""
        what = asdict(self) | {"mechanism": self.mechanism_name}
        facts = [what, mechanisms.digest(self.mechanism), self.version]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def version(self) -> str:
        """Return what is the same for all cells that may be compared, but for mechanisms."""
        facts = [SCHEMA, code_digest(), sys.version.split()[0], metadata.version("torch")]
        facts += hardware()
        facts += [pyft_digest()] if self.substrate == "soft" else []
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


# Besides the mechanism's own files: what runs in the ranks, what starts them, and what judges them.
RUNS = (
    "workloads", "oracles", "mechanisms/checkpoints.py",
    *(f"matrix/{name}.py" for name in ("job", "launch", "storage", "supervisor", "tied")),
)  # fmt: skip


@functools.cache
def hardware() -> list[str]:
    """Return what times depend on: the processor's model, and how many of its cores there are."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    models = [
        line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")
    ]
    return [models[0] if models else platform.machine(), str(len(os.sched_getaffinity(0)))]


@functools.cache
def code_digest() -> str:
    """Return a hash of the code of the lab that a result depends on."""
    root, found = Path(str(resources.files("pyft_lab"))), hashlib.sha256()
    for name in RUNS:
        path = root / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            found.update(file.read_bytes())
    return found.hexdigest()


@functools.cache
def pyft_digest() -> str:
    """Return a hash of pyft as it is installed."""
    record = metadata.distribution("pyft").read_text("RECORD") or ""
    lines = sorted(line for line in record.splitlines() if line.startswith("pyft/"))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class Schedule(BaseModel):
    """Faults uniform over ranks, steps and moments; never at a checkpoint, unless `aligned`."""

    model_config = ConfigDict(extra="forbid")

    faults: int = Field(default=1, ge=1)
    aligned: bool = False
    mixed: bool = False  # the kinds of `fault` take turns within a run
    at: list[list[int]] = []  # lists of steps, each a schedule of its own, instead of drawn ones


class Matrix(BaseModel):
    """The table [matrix] of a file: the product of its lists."""

    model_config = ConfigDict(extra="forbid")

    substrate: str = "cpu"
    workload: list[str] = ["mlp"]
    mechanism: list[str]
    fault: list[str] = ["rank-kill"]
    undisturbed: bool = False  # each mechanism without faults as well
    ranks: list[int] = [2]
    ranks_after: int = 0  # with how many ranks to go on after a fault; 0: as many
    steps: int = Field(default=40, ge=4)
    interval: list[int] = [10]
    seed: list[int] = [1]
    moment: list[str] = list(MOMENTS)
    schedule: Schedule = Schedule()
    timeout_s: float = 240

    def check(self) -> None:
        """Raise for a value that there is not, with the nearest one that there is."""
        for name in self.mechanism:
            mechanisms.find(name)
        known = {"moment": MOMENTS, "workload": WORKLOADS, "fault": tuple(FAULTS)}
        given = [(field, value) for field in known for value in getattr(self, field)]
        for field, value in [*given, ("substrate", self.substrate)]:
            words = known.get(field, SUBSTRATES)
            if value not in words:
                near = difflib.get_close_matches(value, words, 1)
                hint = f"did you mean [{near[0]}]?" if near else f"there are {list(words)}"
                raise SpecError(f"no {field} [{value}]: {hint}")
        if any(BATCH % ranks for ranks in self.ranks):  # or generators of ranks would differ
            raise SpecError(
                f"[{self.ranks}] ranks: a batch of [{BATCH}] cannot be shared out equally"
            )
        if {*self.fault} & {*STORAGE} and any(self.steps % interval for interval in self.interval):
            raise SpecError(
                f"faults of storage need a checkpoint after them: [{self.steps}] steps are no "
                f"multiple of {self.interval}"
            )
        if self.substrate == "cpu" and not set(self.fault) <= set(WITHOUT_GPU):
            there = ", ".join(f"[{kind}]" for kind in WITHOUT_GPU)
            raise SpecError(f"on substrate [cpu] there are no GPUs: fault can be one of {there}")


def check_steps(matrix: Matrix, steps: Sequence[int], wanted: int, ranks: int) -> None:
    """Raise for more faults than a run can have, and for steps that none can be in."""
    if wanted > matrix.steps // 4:
        raise SpecError(f"[{wanted}] faults in [{matrix.steps}] steps are too many")
    if matrix.substrate == "soft" and wanted > ranks:
        raise SpecError(f"[{wanted}] faults on [{ranks}] ranks: on soft GPUs each rank has one")
    if len({*steps}) < len(steps) or not all(1 <= step < matrix.steps - 1 for step in steps):
        last = matrix.steps - 2
        raise SpecError(f"faults at {list(steps)}: steps must differ and lie in 1 to [{last}]")


def schedule(
    matrix: Matrix, ranks: int, interval: int, seed: int,
    kinds: Sequence[str] = ("rank-kill",), at: Sequence[int] = (),
) -> tuple[Fault, ...]:  # fmt: skip
    """Draw the faults that all mechanisms of a seed meet; places are the same for all kinds."""
    draw, found = random.Random(f"faults {seed}"), []
    wanted = len(at) or matrix.schedule.faults
    check_steps(matrix, at, wanted, ranks)
    first = seed % len(kinds)  # so that each kind is as frequent as the others over seeds
    turns = itertools.cycle([*kinds[first:], *kinds[:first]])
    hit = itertools.cycle(draw.sample(range(ranks), ranks))
    for step in at:
        found.append(Fault(step, next(hit), draw.choice(matrix.moment), next(turns)))
    while len(found) < wanted:
        step = draw.randrange(1, matrix.steps - 1)  # a step after it shows when the run goes on
        taken = any(fault.step == step for fault in found)
        if taken or (step % interval == 0 and not matrix.schedule.aligned):
            continue
        found.append(Fault(step, next(hit), draw.choice(matrix.moment), next(turns)))
    return tuple(sorted(found))


def read(path: Path) -> Matrix:
    """Return a user's matrix, or a shipped one by its name."""
    shipped = resources.files("pyft_lab") / "data" / "matrices" / path.name
    try:
        text = path.read_text() if path.exists() or not shipped.is_file() else shipped.read_text()
        matrix = Matrix(**tomllib.loads(text).get("matrix", {}))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"cannot read [{path}]: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SpecError(f"[{path}] {where}: {first['msg']}") from error
    matrix.check()
    return matrix


def expand(matrix: Matrix) -> list[Cell]:
    """Return all cells: per block its reference, then the mechanisms in an order drawn from it."""
    cells: dict[Cell, None] = {}
    kinds = [matrix.fault] if matrix.schedule.mixed else [[kind] for kind in matrix.fault]
    axes = (matrix.seed, matrix.workload, matrix.ranks, matrix.interval, kinds)
    for seed, workload, ranks, interval, of, at in itertools.product(
        *axes, matrix.schedule.at or [()]
    ):
        faults = schedule(matrix, ranks, interval, seed, of, at)
        block = [
            Cell(
                matrix.substrate,
                workload,
                name,
                ranks,
                matrix.steps,
                interval,
                seed,
                events,
                matrix.ranks_after,
            )
            for name in matrix.mechanism
            for events in ([faults, ()] if matrix.undisturbed else [faults])
        ]
        random.Random(f"order {seed} {of} {[*at] or ''}".rstrip()).shuffle(block)
        first = [] if matrix.ranks_after else [block[0].reference]  # known after the run
        cells |= dict.fromkeys([*first, *block])
    return list(cells)
